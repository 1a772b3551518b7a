package encke.reference;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.cometd.bayeux.Promise;
import org.cometd.bayeux.server.BayeuxServer;
import org.cometd.bayeux.server.ServerChannel;
import org.cometd.bayeux.server.ServerMessage;
import org.cometd.bayeux.server.ServerSession;
import org.cometd.server.BayeuxServerImpl;
import org.cometd.server.ext.AcknowledgedMessagesExtension;
import org.cometd.server.http.JSONHttpTransport;
import org.cometd.server.http.JSONPHttpTransport;
import org.cometd.server.http.jakarta.CometDServlet;
import org.cometd.server.websocket.common.AbstractWebSocketTransport;
import org.cometd.server.websocket.jetty.JettyWebSocketTransport;
import org.eclipse.jetty.ee11.servlet.ServletContextHandler;
import org.eclipse.jetty.ee11.servlet.ServletHolder;
import org.eclipse.jetty.server.Context;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.ajax.JSON;
import org.eclipse.jetty.websocket.server.WebSocketUpgradeHandler;

/**
 * CometD 9.0.0 on Jetty, with the control contract of the interop server, so that the
 * scenario list can be run against CometD itself: what passes here is CometD's own behaviour.
 *
 * <p>Arguments: {@code --port N} (0 picks one), {@code --set name=value} (repeatable).
 * The first line on stdout is {@code listening on http://127.0.0.1:PORT}; then each line on
 * stdin is a command answered by one line on stdout (see {@link #run}). {@code quit} or end
 * of input stops the server.
 */
public final class ReferenceServer {
    private static final int ACCEPT_QUEUE_CONNECTIONS = 4096;
    private static final long CONNECTION_IDLE_MS = 120_000;

    private final Server server = new Server();
    private final ServerConnector connector = new ServerConnector(server);
    private final BayeuxServerImpl bayeux = new BayeuxServerImpl();

    public static void main(String[] args) throws Exception {
        // Jetty prints nothing to stdout, but nothing else may either: it is the control channel.
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        ReferenceServer reference = new ReferenceServer(Arguments.parse(args));
        reference.start();
        out.println("listening on http://127.0.0.1:" + reference.connector.getLocalPort());

        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null && !line.equals("quit"); line = commands.readLine()) {
            out.println(reference.run(line));
        }
        reference.server.stop();
        System.exit(0);
    }

    private ReferenceServer(Arguments arguments) {
        connector.setHost("127.0.0.1");
        connector.setPort(arguments.port);
        // Many clients connect at once, and a connection may be silent between two polls of 20 s.
        connector.setAcceptQueueSize(ACCEPT_QUEUE_CONNECTIONS);
        connector.setIdleTimeout(CONNECTION_IDLE_MS);
        server.addConnector(connector);

        ServletContextHandler context = new ServletContextHandler("/");
        context.insertHandler(WebSocketUpgradeHandler.from(server, context));
        context.getServletContext().setAttribute(BayeuxServer.ATTRIBUTE, bayeux);
        ServletHolder cometd = new ServletHolder(CometDServlet.class);
        cometd.setAsyncSupported(true);
        cometd.setInitOrder(1);
        context.addServlet(cometd, "/cometd/*");
        context.addServlet(new ServletHolder(new StartPage()), "/");
        server.setHandler(context);

        arguments.options.forEach((name, value) -> bayeux.setOption(cometdName(name), value));
        bayeux.setOption(Context.class.getName(), context.getContext());
        bayeux.setOption(AbstractWebSocketTransport.PREFIX + "." + AbstractWebSocketTransport.COMETD_URL_MAPPING_OPTION, "/cometd/*");
        bayeux.addTransport(new JettyWebSocketTransport(bayeux));
        bayeux.addTransport(new JSONHttpTransport(bayeux));
        bayeux.addTransport(new JSONPHttpTransport(bayeux));
        if (arguments.options.containsKey("ack")) {
            bayeux.addExtension(new AcknowledgedMessagesExtension());
        }
    }

    private void start() throws Exception {
        server.start();
        bayeux.createChannelIfAbsent("/service/echo", channel -> channel.addListener(new Echo()));
    }

    /**
     * Runs one command line and returns the answer:
     * {@code kick <clientId>} ({@code ok} or {@code unknown}),
     * {@code publish <channel> <json>} ({@code ok}), {@code sessions} ({@code sessions N}).
     */
    private String run(String line) {
        String[] words = line.split(" ", 3);
        return switch (words[0]) {
            case "kick" -> {
                ServerSession session = bayeux.getSession(words[1]);
                if (session == null) {
                    yield "unknown";
                }
                session.disconnect();
                yield "ok";
            }
            case "publish" -> {
                ServerChannel channel = bayeux.createChannelIfAbsent(words[1]).getReference();
                channel.publish(null, new JSON().fromJSON(words[2]), Promise.noop());
                yield "ok";
            }
            case "sessions" -> "sessions " + bayeux.getSessions().size();
            default -> "unknown command";
        };
    }

    /** Turns {@code max_interval_ms} into CometD's {@code maxInterval}. */
    private static String cometdName(String name) {
        StringBuilder result = new StringBuilder();
        for (String word : name.replaceAll("_ms$", "").split("_")) {
            result.append(result.isEmpty() ? word : Character.toUpperCase(word.charAt(0)) + word.substring(1));
        }
        return result.toString();
    }

    /** Sends a remote call's data back to the caller, with the id of the call. */
    private final class Echo implements ServerChannel.MessageListener {
        @Override
        public boolean onMessage(ServerSession from, ServerChannel channel, ServerMessage.Mutable message) {
            ServerMessage.Mutable reply = bayeux.newMessage();
            reply.setChannel(message.getChannel());
            reply.setId(message.getId());
            reply.setData(message.getData());
            reply.setSuccessful(true);
            from.deliver(null, reply, Promise.noop());
            return true;
        }
    }

    /** A page of the server's own origin for browsers to start from. */
    private static final class StartPage extends HttpServlet {
        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            response.setContentType("text/html;charset=UTF-8");
            response.getWriter().print("<!DOCTYPE html><title>reference server</title>");
        }
    }

    /** The command line. */
    private record Arguments(int port, Map<String, String> options) {
        static Arguments parse(String[] args) {
            int port = 0;
            Map<String, String> options = new HashMap<>();
            for (int i = 0; i + 1 < args.length; i += 2) {
                switch (args[i]) {
                    case "--port" -> port = Integer.parseInt(args[i + 1]);
                    case "--set" -> {
                        String[] pair = args[i + 1].split("=", 2);
                        options.put(pair[0], pair[1]);
                    }
                    default -> throw new IllegalArgumentException("unknown argument " + args[i]);
                }
            }
            return new Arguments(port, options);
        }
    }
}
