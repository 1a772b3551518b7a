// An order service beside Encke: webhooks name its traders and take orders, the HTTP API publishes trades and reads them again.
// It needs a JDK, 17 or newer, and nothing else:
//
//     javac -d classes *.java && WEBHOOK_SECRET=whsec_… ENCKE_API_KEY=… java -cp classes OrderService

import com.sun.net.httpserver.*;
import java.io.IOException;
import java.math.BigDecimal;
import java.net.*;
import java.net.http.*;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Executors;
import java.util.stream.Stream;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import static java.nio.charset.StandardCharsets.UTF_8;

public class OrderService {
    static final byte[] SECRET = Base64.getDecoder().decode(System.getenv("WEBHOOK_SECRET").replace("whsec_", ""));
    static final String API = System.getenv().getOrDefault("ENCKE_URL", "http://127.0.0.1:8080") + "/api/v1";
    static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    public static void main(String[] arguments) throws IOException {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "3000"));
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/", OrderService::handle);
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.start();
    }

    static void handle(HttpExchange request) throws IOException {
        byte[] body = request.getRequestBody().readAllBytes();
        boolean isSigned = isSigned(request.getRequestHeaders(), body);
        byte[] answer = isSigned ? Json.write(answer(Json.read(new String(body, UTF_8)))).getBytes(UTF_8) : new byte[0];
        request.sendResponseHeaders(isSigned ? 200 : 401, isSigned ? answer.length : -1);
        request.getResponseBody().write(answer);
        request.close();
    }

    /** True if Encke signed this body at most five minutes ago. */
    static boolean isSigned(Headers headers, byte[] body) {
        try {
            String seconds = headers.getFirst("webhook-timestamp");
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(SECRET, "HmacSHA256"));
            mac.update((headers.getFirst("webhook-id") + "." + seconds + ".").getBytes(UTF_8));
            byte[] expected = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(UTF_8);
            var signatures = Stream.of(headers.getFirst("webhook-signature").split(" "));
            return Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(seconds)) < 300
                && signatures.anyMatch(one -> MessageDigest.isEqual(one.getBytes(UTF_8), expected));
        } catch (Exception incomplete) {
            return false;
        }
    }

    static Map<String, ?> answer(Map<?, ?> event) {
        var data = (Map<?, ?>) event.get("data");
        String channel = "" + data.get("channel"), own = "/orders/" + data.get("user");
        try {
            return switch ((String) event.get("type")) {
                case "handshake" -> named(data.get("ext") instanceof Map<?, ?> ext ? ext.get("name") : null);
                case "subscribe" -> Map.of("allow", Set.of("/trades", own).contains(channel), "reason", "not_yours");
                case "publish" -> Map.of("allow", false, "reason", "only_the_service_publishes");
                case "service" -> Map.of("reply", switch (channel) {
                    case "/service/buy" -> buy(own, (Map<?, ?>) data.get("data"), (String) event.get("id"));
                    case "/service/orders" -> orders(own);
                    default -> throw new IllegalArgumentException(channel);
                });
                default -> Map.of();
            };
        } catch (Exception error) { // A client has sent something unexpected, or Encke refuses it.
            return Map.of("failure", error.toString());
        }
    }

    /** The client sends its name in `ext`. A real service checks a password or a cookie here. */
    static Map<String, ?> named(Object name) {
        boolean isName = name instanceof String text && text.matches("[A-Za-z0-9]+");
        return isName ? Map.of("allow", true, "user", name) : Map.of("allow", false, "code", 401, "reason", "name_required");
    }

    static Object buy(String own, Map<?, ?> data, String event) throws Exception {
        var order = Map.of("item", (String) data.get("item"), "count", ((BigDecimal) data.get("count")).intValueExact());
        var body = Map.of("messages", Stream.of("/trades", own).map(to -> Map.of("channels", List.of(to), "data", order)).toList());
        // A retry of the event has the same id, so it publishes nothing twice.
        var post = HttpRequest.newBuilder().header("Content-Type", "application/json").header("Idempotency-Key", event);
        var published = call("/publish/batch", post.POST(HttpRequest.BodyPublishers.ofString(Json.write(body))));
        return Map.of("order", ((Map<?, ?>) ((List<?>) published.get("positions")).get(1)).get("offset"));
    }

    static Object orders(String own) throws Exception {
        var messages = (List<?>) call("/history?channel=" + own, HttpRequest.newBuilder()).get("messages");
        return messages.stream().map(each -> ((Map<?, ?>) ((Map<?, ?>) each).get("message")).get("data")).toList();
    }

    static Map<?, ?> call(String path, HttpRequest.Builder request) throws Exception {
        request.uri(URI.create(API + path)).timeout(Duration.ofSeconds(5)).header("X-API-Key", System.getenv("ENCKE_API_KEY"));
        var response = HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
        return switch (response.statusCode()) {
            case 200 -> Json.read(response.body());
            case 404 -> Map.of("messages", List.of()); // A channel without messages has no history.
            default -> throw new IOException(response.body());
        };
    }
}
