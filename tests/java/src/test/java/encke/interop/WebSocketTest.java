package encke.interop;

import java.util.Map;
import org.cometd.client.transport.ClientTransport;
import org.cometd.client.websocket.jakarta.WebSocketTransport;
import org.eclipse.jetty.ee11.websocket.jakarta.client.JakartaWebSocketClientContainer;
import org.junit.jupiter.api.DisplayName;

/** The scenarios over {@code cometd-java-client-websocket-jakarta}, on Jetty's Jakarta client. */
@DisplayName("CometD Java client over WebSocket")
class WebSocketTest extends Scenarios {
    private final JakartaWebSocketClientContainer container = new JakartaWebSocketClientContainer();

    @Override
    void startClient() throws Exception {
        container.start();
    }

    @Override
    void stopClient() throws Exception {
        container.stop();
    }

    @Override
    String type() {
        return "websocket";
    }

    @Override
    ClientTransport newTransport(Map<String, Object> options) {
        return new WebSocketTransport(options, null, container);
    }
}
