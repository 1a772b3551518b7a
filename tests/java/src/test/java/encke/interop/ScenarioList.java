package encke.interop;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;

/**
 * The shared list, by name. A test's display name is the scenario's name. As a JUnit extension it
 * turns round the scenarios that CometD's own server is known to fail, when that is under test.
 */
public final class ScenarioList implements InvocationInterceptor {
    /** One entry of the list; what it expects is in the tests. */
    record Scenario(String name, Map<String, String> server, List<String> expects, String cometdFails) {
        Scenario {
            server = server == null ? Map.of() : server;
        }
    }

    static final Map<String, Scenario> ALL = read();

    @Override
    public void interceptTestMethod(Invocation<Void> test, ReflectiveInvocationContext<Method> method, ExtensionContext context)
            throws Throwable {
        Scenario scenario = ALL.get(method.getExecutable().getAnnotation(DisplayName.class).value());
        if (InteropServer.IS_COMETD && scenario != null && scenario.cometdFails != null) {
            Assertions.assertThrows(AssertionError.class, test::proceed, scenario.cometdFails);
        } else {
            test.proceed();
        }
    }

    private static Map<String, Scenario> read() {
        try {
            Map<String, Scenario> result = new LinkedHashMap<>();
            for (Scenario scenario : new ObjectMapper().readValue(new File("../interop/scenarios.json"), Scenario[].class)) {
                result.put(scenario.name, scenario);
            }
            return result;
        } catch (IOException x) {
            throw new UncheckedIOException(x);
        }
    }
}
