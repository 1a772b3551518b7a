package encke.interop;

import org.cometd.bayeux.client.ClientSessionChannel;
import org.cometd.client.BayeuxClient;
import org.cometd.client.http.jetty.JettyHttpClientTransport;
import org.eclipse.jetty.client.HttpClient;

/** The first steps of the server's start page. */
final class Hello {
    public static void main(String[] args) throws Exception {
        HttpClient http = new HttpClient();
        http.start();
        BayeuxClient client = new BayeuxClient("http://127.0.0.1:8080/cometd", new JettyHttpClientTransport(null, http));
        client.handshake(reply -> {
            ClientSessionChannel hello = client.getChannel("/demo/hello");
            hello.subscribe((channel, message) -> System.out.println(message.getData()));
            hello.publish("hi from Java");
        });
    }
}
