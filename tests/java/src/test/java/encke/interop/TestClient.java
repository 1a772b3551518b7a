package encke.interop;

import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;
import org.cometd.bayeux.client.ClientSessionChannel;
import org.cometd.client.BayeuxClient;
import org.cometd.client.transport.ClientTransport;
import org.cometd.client.transport.TransportListener;
import org.junit.jupiter.api.Assertions;

/** The official client with waiting calls and a record of the messages on its wire. */
final class TestClient extends BayeuxClient {
    /** Messages sent (with a leading {@code >}) and received. */
    final Queue<String> wire = new ConcurrentLinkedQueue<>();

    TestClient(String url, ClientTransport transport) {
        super(url, transport);
        setBackOffStrategy(new BackOffStrategy.Linear(250, 1000));
        addTransportListener(new TransportListener() {
            @Override
            public void onSending(List<? extends Message> messages) {
                messages.forEach(message -> wire.add("> " + message));
            }

            @Override
            public void onMessages(List<Message.Mutable> messages) {
                messages.forEach(message -> wire.add("< " + message));
            }
        });
    }

    /** Handshakes and waits for the first connect reply; returns the handshake reply. */
    Message connect() throws InterruptedException {
        Inbox connects = new Inbox();
        addMetaListener("/meta/connect", message -> true, connects);
        Inbox handshakes = new Inbox();
        handshake(handshakes::add);
        Message reply = handshakes.next("handshake reply");
        Assertions.assertTrue(reply.isSuccessful(), () -> "handshake refused: " + reply);
        Message connect = connects.next("first connect reply");
        Assertions.assertTrue(connect.isSuccessful(), () -> "first connect refused: " + connect);
        return reply;
    }

    /** Subscribes and waits for success; returns the reply. */
    Message subscribe(String channel, ClientSessionChannel.MessageListener listener) throws InterruptedException {
        Inbox replies = new Inbox();
        getChannel(channel).subscribe(listener, replies::add);
        Message reply = replies.next("subscribe reply for " + channel);
        Assertions.assertTrue(reply.isSuccessful(), () -> "subscribe refused: " + reply);
        return reply;
    }

    /** Publishes and waits for success; returns the reply. */
    Message publish(String channel, Object data) throws InterruptedException {
        Inbox replies = new Inbox();
        getChannel(channel).publish(data, replies::add);
        Message reply = replies.next("publish reply for " + channel);
        Assertions.assertTrue(reply.isSuccessful(), () -> "publish refused: " + reply);
        return reply;
    }

    /** Puts the messages of a meta channel that pass the filter into the inbox. */
    void addMetaListener(String channel, Predicate<Message> filter, Inbox inbox) {
        getChannel(channel).addListener((ClientSessionChannel.MessageListener)(c, message) -> {
            if (filter.test(message)) {
                inbox.add(message);
            }
        });
    }

    /** Waits until the second connect, the held one, is out. */
    void holdsConnect() throws InterruptedException {
        eventually("a held connect", () -> wire.stream().filter(text -> text.startsWith(">") && text.contains("/meta/connect")).count() >= 2);
        Thread.sleep(100);
    }

    /**
     * Makes the client silent, like a laptop that sleeps: the next connect reply reads, to the
     * client alone, as if it advised to wait before the next connect.
     */
    void sleepOnce(long milliseconds) {
        addExtension(new Extension() {
            @Override
            public boolean rcvMeta(ClientSession session, Message.Mutable message) {
                if (message.getChannel().equals("/meta/connect")) {
                    removeExtension(this);
                    message.getAdvice(true).putAll(Map.of("reconnect", "retry", "interval", milliseconds, "timeout", 1000L));
                }
                return true;
            }
        });
    }

    /** Polls until the condition holds. */
    static void eventually(String what, BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Inbox.WAIT_SECONDS);
        while (!condition.getAsBoolean()) {
            Assertions.assertTrue(System.nanoTime() < end, () -> "never happened: " + what);
            Thread.sleep(20);
        }
    }
}
