package encke.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * The server under test: a program that is driven over its stdin and stdout. One instance is one
 * server on one port, through its starts and stops.
 */
final class InteropServer implements AutoCloseable {
    /** Path of the program; the reference server obeys the same contract. */
    private static final String PROGRAM =
            System.getenv().getOrDefault("INTEROP_SERVER", "../../target/release/examples/interop_server");

    /** True if the program is CometD itself. It fails the scenarios that are marked for it. */
    static final boolean IS_COMETD = "1".equals(System.getenv("INTEROP_COMETD"));

    /** The files of the server's certificate without their endings, if it speaks TLS. */
    private static final String CERTIFICATE = System.getenv("INTEROP_TLS");

    private static final String ORIGIN = (CERTIFICATE == null ? "http" : "https") + "://127.0.0.1:";

    /** No session expires while a busy machine keeps its client waiting. */
    private static final Map<String, String> DEFAULTS = Map.of("timeout_ms", "10000", "max_interval_ms", "300000");

    /** The limit of the time that the program may take to stop. */
    private static final long ANSWER_LIMIT_SECONDS = 90;

    private final Map<String, String> options = new TreeMap<>(DEFAULTS);
    private int port;
    private Process process;
    private BufferedReader answers;

    InteropServer(Map<String, String> options) {
        if (CERTIFICATE != null) {
            this.options.putAll(Map.of("tls_cert", CERTIFICATE + ".pem", "tls_key", CERTIFICATE + ".key"));
        }
        this.options.putAll(options);
    }

    /** The Bayeux URL. */
    String url() {
        return ORIGIN + port + "/cometd";
    }

    /** The value of an option given with {@code --set}. */
    String option(String name) {
        return options.get(name);
    }

    /** Starts it, on the same port as the last time. */
    void start() throws IOException {
        List<String> command = new ArrayList<>(List.of(PROGRAM, "--port", String.valueOf(port)));
        options.forEach((name, value) -> command.addAll(List.of("--set", name + "=" + value)));
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        answers = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String first = answers.readLine();
        String expected = "listening on " + ORIGIN;
        if (first == null || !first.startsWith(expected)) {
            throw new IOException("unexpected first line: " + first);
        }
        port = Integer.parseInt(first.substring(expected.length()));
    }

    /** Runs one command line and returns the answer. */
    String control(String line) throws IOException {
        process.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
        process.getOutputStream().flush();
        return answers.readLine();
    }

    /** Ends it gracefully; returns its exit code. */
    int stop() throws IOException, InterruptedException {
        process.getOutputStream().write("quit\n".getBytes(StandardCharsets.UTF_8));
        process.getOutputStream().close();
        if (!process.waitFor(ANSWER_LIMIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IOException("the server does not stop");
        }
        return process.exitValue();
    }

    /** Kills it (SIGKILL), so it closes no session. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor(ANSWER_LIMIT_SECONDS, TimeUnit.SECONDS);
    }

    @Override
    public void close() throws InterruptedException {
        if (process != null) {
            kill();
        }
    }
}
