import java.util.HashMap;
import java.util.Map;
import java.util.function.BiConsumer;
import org.cometd.bayeux.Channel;
import org.cometd.bayeux.ChannelId;
import org.cometd.bayeux.Message;
import org.cometd.bayeux.client.ClientSession;

/** Replay for CometD's Java client: it subscribes at the last positions, and drops messages that the program has. */
public class ReplayExtension implements ClientSession.Extension {
    private final Map<String, Object> positions;
    private final Map<String, Object> requested = new HashMap<>();
    private final BiConsumer<String, Object> lost;

    /**
     * Positions at which channels and patterns begin: -1 with new messages, -2 with all that the server retains, n after message n, or
     * those of an earlier extension. {@code lost} gets a channel and the range of messages that are gone, or null if the server cannot know it.
     */
    public ReplayExtension(Map<String, Object> positions, BiConsumer<String, Object> lost) {
        this.positions = new HashMap<>(positions);
        this.lost = lost;
    }

    /** The positions, for the next start of the program. */
    public synchronized Map<String, Object> positions() {
        return new HashMap<>(positions);
    }

    @Override
    public synchronized boolean sendMeta(ClientSession session, Message.Mutable message) {
        if (message.getChannel().equals(Channel.META_HANDSHAKE)) {
            message.getExt(true).put("replay", Map.of("positions", "ext"));
        } else if (message.getChannel().equals(Channel.META_SUBSCRIBE)) {
            String name = (String)message.get(Message.SUBSCRIPTION_FIELD);
            Map<String, Object> begin = new HashMap<>(Map.of(name, -1));
            positions.forEach((channel, position) -> {
                if (channel.equals(name) || new ChannelId(name).matches(new ChannelId(channel))) {
                    begin.put(channel, position);
                }
            });
            requested.putAll(begin);
            message.getExt(true).put("replay", begin);
        }
        return true;
    }

    @Override
    public synchronized boolean rcvMeta(ClientSession session, Message.Mutable message) {
        if (message.getChannel().equals(Channel.META_SUBSCRIBE)) {
            replayOf(message).forEach((channel, answer) -> subscribed(channel, (Map<?, ?>)answer));
        } else if (message.getChannel().equals(Channel.META_CONNECT)) {
            // The position of the session while no message waits for it.
            replayOf(message).forEach((channel, position) -> received(channel, (Map<?, ?>)position));
        }
        return true;
    }

    @Override
    public synchronized boolean rcv(ClientSession session, Message.Mutable message) {
        Map<String, Object> replay = replayOf(message);
        // The reply to a publication has its position, too, and may come before the message.
        if (!replay.containsKey("id") || message.isPublishReply()) {
            return true;
        }
        if (has(message.getChannel(), replay.get("epoch"), (Number)replay.get("id"))) {
            return false;
        }
        received(message.getChannel(), replay);
        return true;
    }

    private void subscribed(String channel, Map<?, ?> answer) {
        boolean recovered = Boolean.TRUE.equals(answer.get("recovered"));
        Number from = (Number)answer.get("from");
        // Over long-polling, messages may arrive before the answer.
        boolean hasChanged = positions.get(channel) != requested.get(channel);
        if (from == null) {
            // The channel has no history any more. If it gets one again, all of its messages are new.
            positions.put(channel, -2);
        } else if (!has(channel, answer.get("epoch"), from.longValue() - 1) || !hasChanged && !recovered) {
            positions.put(channel, Map.of("id", from.longValue() - 1, "epoch", answer.get("epoch")));
        }
        if (!recovered) {
            lost.accept(channel, answer.get("lost"));
        }
    }

    private void received(String channel, Map<?, ?> position) {
        Object epoch = position.get("epoch");
        if (position.get("lost") instanceof Map<?, ?> range && !(range.get("to") instanceof Number to && has(channel, epoch, to))) {
            lost.accept(channel, range.get("to") == null ? null : range);
        }
        positions.put(channel, position.get("id") == null ? -2 : Map.of("id", position.get("id"), "epoch", epoch));
    }

    /** True if the known position of a channel is this one, or a later one. */
    private boolean has(String channel, Object epoch, Number id) {
        return positions.get(channel) instanceof Map<?, ?> known && known.get("epoch").equals(epoch)
                && ((Number)known.get("id")).longValue() >= id.longValue();
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> replayOf(Message message) {
        Object replay = message.getExt() == null ? null : message.getExt().get("replay");
        return replay instanceof Map ? (Map<String, Object>)replay : Map.of();
    }
}
