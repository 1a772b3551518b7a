package encke.interop;

import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.cometd.bayeux.Message;
import org.junit.jupiter.api.Assertions;

/** Messages in the order they came, taken by waiting for them. */
final class Inbox {
    /** How long a scenario waits for one thing to happen. */
    static final long WAIT_SECONDS = 90;

    /** How long nothing must happen before a scenario believes that it never will. */
    static final long QUIET_MS = 400;

    private final BlockingQueue<Message> messages = new LinkedBlockingQueue<>();

    void add(Message message) {
        messages.add(message);
    }

    /** The next message, waiting for it; {@code what} names it in the failure. */
    Message next(String what) throws InterruptedException {
        Message message = messages.poll(WAIT_SECONDS, TimeUnit.SECONDS);
        Assertions.assertNotNull(message, "gave up waiting for: " + what);
        return message;
    }

    /** Fails when a message is there or comes within {@link #QUIET_MS}. */
    void staysEmpty() throws InterruptedException {
        Thread.sleep(QUIET_MS);
        Assertions.assertEquals(List.of(), List.copyOf(messages), "unexpected messages");
    }
}
