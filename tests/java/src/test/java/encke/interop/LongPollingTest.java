package encke.interop;

import java.util.Map;
import org.cometd.client.http.jetty.JettyHttpClientTransport;
import org.cometd.client.transport.ClientTransport;
import org.eclipse.jetty.client.HttpClient;
import org.junit.jupiter.api.DisplayName;

/** The scenarios over {@code cometd-java-client-http-jetty}. */
@DisplayName("CometD Java client over long-polling")
class LongPollingTest extends Scenarios {
    private final HttpClient http = new HttpClient();

    @Override
    void startClient() throws Exception {
        http.start();
    }

    @Override
    void stopClient() throws Exception {
        http.stop();
    }

    @Override
    String type() {
        return "long-polling";
    }

    @Override
    ClientTransport newTransport(Map<String, Object> options) {
        return new JettyHttpClientTransport(options, http);
    }
}
