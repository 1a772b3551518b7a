// The little that OrderService needs of JSON, because a JDK has none. A real application uses its library.

import java.math.BigDecimal;
import java.nio.CharBuffer;
import java.util.*;
import java.util.stream.*;

final class Json {
    private static final String ESCAPES = "bfnrt", ESCAPED = "\b\f\n\r\t";

    /** Reads a valid object: as maps, lists, texts, BigDecimal, Boolean and null. */
    static Map<?, ?> read(String text) {
        var in = CharBuffer.wrap(text);
        return (Map<?, ?>) value(in, next(in));
    }

    static String write(Object value) {
        if (value instanceof Map<?, ?> map) {
            var members = map.entrySet().stream().map(member -> write(member.getKey()) + ":" + write(member.getValue()));
            return members.collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof List<?> list) return list.stream().map(Json::write).collect(Collectors.joining(",", "[", "]"));
        if (!(value instanceof String text)) return String.valueOf(value);
        return text.chars().mapToObj(Json::character).collect(Collectors.joining("", "\"", "\""));
    }

    private static String character(int c) {
        return c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", c) : Character.toString(c);
    }

    private static Object value(CharBuffer in, char first) {
        var text = new StringBuilder();
        if (first == '{') {
            var map = new LinkedHashMap<Object, Object>();
            for (char c; (c = next(in)) != '}'; ) map.put(value(in, c), value(in, next(in)));
            return map;
        } else if (first == '[') {
            var list = new ArrayList<>();
            for (char c; (c = next(in)) != ']'; ) list.add(value(in, c));
            return list;
        } else if (first == '"') {
            for (char c; (c = in.get()) != '"'; ) text.append(c == '\\' ? escaped(in) : c);
            return text.toString();
        }
        for (text.append(first); ",]} \t\r\n".indexOf(in.charAt(0)) < 0; ) text.append(in.get());
        if (first == 't' || first == 'f') return first == 't';
        return first == 'n' ? null : new BigDecimal(text.toString());
    }

    /** The next character that is neither space nor between two values. */
    private static char next(CharBuffer in) {
        while (" \t\r\n,:".indexOf(in.charAt(0)) >= 0) in.get();
        return in.get();
    }

    private static char escaped(CharBuffer in) {
        char c = in.get();
        if (c == 'u') return (char) Integer.parseInt("" + in.get() + in.get() + in.get() + in.get(), 16);
        return ESCAPES.indexOf(c) < 0 ? c : ESCAPED.charAt(ESCAPES.indexOf(c));
    }
}
