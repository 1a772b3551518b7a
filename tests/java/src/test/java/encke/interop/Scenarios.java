package encke.interop;

import static encke.interop.TestClient.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSessionChannel.MessageListener;
import org.cometd.client.transport.ClientTransport;
import org.cometd.common.JacksonJSONContextClient;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.ExtendWith;

/** The scenarios of the shared list, for the transport of a subclass; display names are the list's names. */
@ExtendWith(ScenarioList.class)
@Timeout(180)
abstract class Scenarios {
    private final List<TestClient> clients = new ArrayList<>();
    private InteropServer server;

    /** The connection type. */
    abstract String type();

    /** Starts what all clients of a scenario share. */
    abstract void startClient() throws Exception;

    /** Stops it; all clients are disconnected. */
    abstract void stopClient() throws Exception;

    /** A new transport of a client that shares no cookie with another. */
    abstract ClientTransport newTransport(Map<String, Object> options);

    @BeforeEach
    void start(TestInfo test) throws Exception {
        startClient();
        ScenarioList.Scenario scenario = ScenarioList.ALL.get(test.getDisplayName());
        server = new InteropServer(scenario == null ? Map.of() : scenario.server());
        server.start();
    }

    @AfterEach
    void stop() throws Exception {
        clients.forEach(client -> client.disconnect(1000));
        server.close();
        stopClient();
    }

    @Test
    @DisplayName("the tests are the list")
    void theTestsAreTheList() {
        Set<String> names = Stream.of(Scenarios.class.getDeclaredMethods())
                .filter(method -> method.isAnnotationPresent(Test.class))
                .map(method -> method.getAnnotation(DisplayName.class).value())
                .collect(Collectors.toCollection(HashSet::new));
        names.remove("the tests are the list");
        assertEquals(ScenarioList.ALL.keySet(), names);
    }

    @Test
    @DisplayName("handshake")
    void handshake() throws Exception {
        TestClient client = newClient();
        Message reply = client.connect();
        assertTrue(reply.getClientId().matches("\\w{16,}"), reply.getClientId());
        assertEquals("1.0", reply.get("version"));
        List<?> types = list(reply.get("supportedConnectionTypes"));
        assertTrue(types.contains(type()), () -> "types: " + types);
        assertEquals("retry", reply.getAdvice().get("reconnect"));
        assertEquals(0L, reply.getAdvice().get("interval"));
        assertEquals(Long.valueOf(server.option("timeout_ms")), reply.getAdvice().get("timeout"));
        assertEquals("sessions 1", server.control("sessions"));
    }

    @Test
    @DisplayName("subscribe")
    void subscribe() throws Exception {
        TestClient client = connected();
        TestClient peer = connected();
        Inbox inbox = new Inbox();
        Message reply = client.subscribe("/news/one", into(inbox));
        assertEquals("/news/one", reply.get("subscription"));
        peer.publish("/news/two", "elsewhere");
        peer.publish("/news/one", Map.of("text", "hello"));
        Message message = inbox.next("message");
        assertEquals("/news/one", message.getChannel());
        assertEquals(Map.of("text", "hello"), message.getData());
        assertNull(message.getClientId(), "the publisher's clientId is shown");
        inbox.staysEmpty();
    }

    @Test
    @DisplayName("wildcard")
    void wildcard() throws Exception {
        TestClient client = connected();
        TestClient peer = connected();
        Inbox star = new Inbox();
        Inbox starStar = new Inbox();
        client.subscribe("/x/*", into(star));
        client.subscribe("/x/**", into(starStar));
        for (String channel : List.of("/x", "/x/a", "/x/a/b", "/y/a")) {
            peer.publish(channel, channel);
        }
        assertEquals("/x/a", star.next("first for /x/*").getData());
        assertEquals("/x/a", starStar.next("first for /x/**").getData());
        assertEquals("/x/a/b", starStar.next("second for /x/**").getData());
        star.staysEmpty();
        starStar.staysEmpty();
        Pattern delivery = Pattern.compile("< .*\\bdata\\W+/x/a\\b(?!/).*");
        assertEquals(1, client.wire.stream().filter(text -> delivery.matcher(text).matches()).count(), "times /x/a came over the wire");
    }

    @Test
    @DisplayName("publish with reply")
    void publishWithReply() throws Exception {
        TestClient client = connected();
        Inbox inbox = new Inbox();
        client.subscribe("/own", into(inbox));
        Message reply = client.publish("/own", Map.of("n", "one"));
        assertEquals("/own", reply.getChannel());
        assertTrue(client.wire.stream().anyMatch(text -> text.startsWith("> ") && text.contains("/own") && text.contains(reply.getId())),
                "the reply's id is not the publish's");
        assertEquals(Map.of("n", "one"), inbox.next("own message").getData());
        inbox.staysEmpty();
    }

    @Test
    @DisplayName("batch")
    void batch() throws Exception {
        TestClient client = connected();
        Inbox inbox = new Inbox();
        Inbox replies = new Inbox();
        client.batch(() -> {
            client.getChannel("/batch").subscribe(into(inbox), replies::add);
            IntStream.range(0, 50).forEach(n -> client.getChannel("/batch").publish((long)n, replies::add));
        });
        for (int i = 0; i < 51; i++) {
            Message reply = replies.next("reply " + i);
            assertTrue(reply.isSuccessful(), () -> "refused: " + reply);
        }
        for (long n = 0; n < 50; n++) {
            assertEquals(n, inbox.next("message " + n).getData());
        }
        inbox.staysEmpty();
    }

    @Test
    @DisplayName("service message")
    void serviceMessage() throws Exception {
        TestClient client = connected();
        TestClient peer = connected();
        peer.subscribe("/**", into(new Inbox()));
        Inbox answers = new Inbox();
        client.remoteCall("/echo", Map.of("question", "who?"), answers::add);
        Message answer = answers.next("answer");
        assertTrue(answer.isSuccessful(), () -> "answer: " + answer);
        assertEquals(Map.of("question", "who?"), answer.getData());

        List<Inbox> three = List.of(new Inbox(), new Inbox(), new Inbox());
        for (int n = 0; n < 3; n++) {
            client.remoteCall("/echo", (long)n, three.get(n)::add);
        }
        for (int n = 0; n < 3; n++) {
            assertEquals((long)n, three.get(n).next("answer " + n).getData());
        }
        Thread.sleep(Inbox.QUIET_MS);
        assertTrue(peer.wire.stream().noneMatch(text -> text.contains("/service/")), "another session sees the calls");
    }

    @Test
    @DisplayName("unsubscribe")
    void unsubscribe() throws Exception {
        TestClient client = connected();
        TestClient peer = connected();
        Inbox inbox = new Inbox();
        MessageListener listener = into(inbox);
        client.subscribe("/news", listener);
        peer.publish("/news", "while subscribed");
        assertEquals("while subscribed", inbox.next("message").getData());

        Inbox replies = new Inbox();
        client.getChannel("/news").unsubscribe(listener, replies::add);
        Message reply = replies.next("unsubscribe reply");
        assertTrue(reply.isSuccessful(), () -> "refused: " + reply);
        assertEquals("/news", reply.get("subscription"));
        peer.publish("/news", "after unsubscribe");
        inbox.staysEmpty();
        assertTrue(client.wire.stream().noneMatch(text -> text.contains("after unsubscribe")), "the server still delivers");
    }

    @Test
    @DisplayName("disconnect")
    void disconnect() throws Exception {
        TestClient client = connected();
        Inbox replies = new Inbox();
        client.disconnect(replies::add);
        assertTrue(replies.next("disconnect reply").isSuccessful());
        eventually("state disconnected", client::isDisconnected);
        noSessionsLeft();
    }

    @Test
    @DisplayName("server killed and restarted")
    void serverKilledAndRestarted() throws Exception {
        recovers(client -> {
            server.kill();
            Thread.sleep(500);
            server.start();
        });
    }

    @Test
    @DisplayName("server stopped and restarted")
    void serverStoppedAndRestarted() throws Exception {
        recovers(client -> {
            assertEquals(0, server.stop(), "exit code");
            server.start();
        });
    }

    @Test
    @DisplayName("expired session")
    void expiredSession() throws Exception {
        recovers(client -> {
            Inbox refused = new Inbox();
            client.addMetaListener("/meta/connect", message -> !message.isSuccessful(), refused);
            client.sleepOnce(8000);
            Message reply = refused.next("refused connect");
            assertEquals("402::session_unknown", reply.get("error"));
            assertEquals("handshake", reply.getAdvice().get("reconnect"));
        });
    }

    @Test
    @DisplayName("kicked session")
    void kickedSession() throws Exception {
        TestClient client = connected();
        String clientId = client.getId();
        client.holdsConnect();
        assertEquals("ok", server.control("kick " + clientId));
        eventually("state disconnected", client::isDisconnected);
        noSessionsLeft();

        Inbox handshakes = new Inbox();
        client.addMetaListener("/meta/handshake", message -> true, handshakes);
        Thread.sleep(2 * Inbox.QUIET_MS);
        handshakes.staysEmpty();
        assertNotEquals(clientId, client.connect().getClientId());
    }

    @Test
    @DisplayName("60 KB message")
    void sixtyKilobyteMessage() throws Exception {
        TestClient client = newClient(Map.of(ClientTransport.MAX_SEND_BAYEUX_MESSAGE_SIZE_OPTION, 100_000));
        client.connect();
        TestClient peer = connected();
        Inbox inbox = new Inbox();
        Inbox peerInbox = new Inbox();
        client.subscribe("/large", into(inbox));
        peer.subscribe("/large", into(peerInbox));
        String data = "0123456789abcdef".repeat(3840);
        client.publish("/large", data);
        assertEquals(data, inbox.next("own large message").getData());
        assertEquals(data, peerInbox.next("large message").getData());
    }

    @Test
    @DisplayName("unicode")
    void unicode() throws Exception {
        TestClient client = connected();
        TestClient peer = connected();
        Inbox inbox = new Inbox();
        Inbox peerInbox = new Inbox();
        client.subscribe("/text", into(inbox));
        peer.subscribe("/text", into(peerInbox));
        for (String text : UNICODE) {
            client.publish("/text", Map.of(text, text));
            assertEquals(Map.of(text, text), inbox.next("own text").getData());
            assertEquals(Map.of(text, text), peerInbox.next("text").getData());
        }
    }

    @Test
    @DisplayName("integers above 2^53")
    void integersAbove2To53() throws Exception {
        // The client's Jackson back end keeps integers of any size; its default one does not.
        TestClient client = newClient(Map.of(ClientTransport.JSON_CONTEXT_OPTION, new JacksonJSONContextClient()));
        client.connect();
        Inbox inbox = new Inbox();
        client.subscribe("/numbers", into(inbox));
        client.publish("/numbers", LARGE_INTEGERS);
        assertEquals(LARGE_INTEGERS, integers(inbox.next("numbers of the client")), "from the client");
        server.control("publish /numbers " + LARGE_INTEGERS.toString().replace(" ", ""));
        assertEquals(LARGE_INTEGERS, integers(inbox.next("numbers of the server")), "from the server");
    }

    /** What happens to the server or to the client in the middle of a scenario. */
    private interface Fault {
        void happen(TestClient client) throws Exception;
    }

    /**
     * A subscribed client goes through a fault, must come back by itself with a new session, and,
     * when it has subscribed again (as applications do, on the handshake), gets messages again.
     */
    private void recovers(Fault fault) throws Exception {
        TestClient client = connected();
        String oldClientId = client.getId();
        Inbox inbox = new Inbox();
        client.subscribe("/news", into(inbox));
        server.control("publish /news \"before\"");
        assertEquals("before", inbox.next("message before the fault").getData());
        client.holdsConnect();

        Inbox back = new Inbox();
        Inbox subscribed = new Inbox();
        client.addMetaListener("/meta/handshake", message -> {
            if (message.isSuccessful()) {
                client.getChannel("/news").subscribe(into(inbox), subscribed::add);
            }
            return message.isSuccessful();
        }, back);
        fault.happen(client);
        assertNotEquals(oldClientId, back.next("handshake after the fault").getClientId());
        assertTrue(subscribed.next("subscribe reply after the fault").isSuccessful());
        server.control("publish /news \"after\"");
        assertEquals("after", inbox.next("message after the fault").getData());
        inbox.staysEmpty();
        assertEquals("sessions 1", server.control("sessions"));
        assertFalse(client.isDisconnected());
    }

    /** Waits until the server has no session, long before one could expire. */
    private void noSessionsLeft() throws Exception {
        String answer = server.control("sessions");
        for (long i = 0; i < 20 * Inbox.WAIT_SECONDS && !answer.equals("sessions 0"); i++) {
            Thread.sleep(50);
            answer = server.control("sessions");
        }
        assertEquals("sessions 0", answer);
    }

    private TestClient connected() throws InterruptedException {
        TestClient client = newClient();
        client.connect();
        return client;
    }

    private TestClient newClient() {
        return newClient(Map.of());
    }

    private TestClient newClient(Map<String, Object> options) {
        TestClient client = new TestClient(server.url(), newTransport(new HashMap<>(options)));
        clients.add(client);
        return client;
    }

    private static MessageListener into(Inbox inbox) {
        return (channel, message) -> inbox.add(message);
    }

    private static List<BigInteger> integers(Message message) {
        return list(message.getData()).stream().map(number -> new BigInteger(number.toString())).toList();
    }

    /** A JSON array, which the client's parsers give as an array or as a list. */
    private static List<?> list(Object array) {
        return array instanceof Object[] elements ? Arrays.asList(elements) : (List<?>)array;
    }

    private static final List<String> UNICODE = List.of(
            "Grüße, naïve façade, ¿qué?",
            "Привет · Γειά · 你好 · こんにちは · 안녕 · שלום · مرحبا · हिन्दी",
            "😀 👩‍👩‍👧‍👦 𝔘𝔫𝔦 🇪🇺 e\u0301",
            "\0\1\b\t\n\f\r\37\177\u0080",
            "\"quoted\" \\ / \\\\u0041 </script><!-- ]]>",
            "\u2028\u2029\ufeff\ufffd\uffff",
            "%41 + & = ? #");

    private static final List<BigInteger> LARGE_INTEGERS = Stream.of(
            "9007199254740993", "-9007199254740993", "9223372036854775807", "18446744073709551615",
            "12345678901234567890", "-12345678901234567890", "123456789012345678901234567890")
            .map(BigInteger::new).toList();
}
