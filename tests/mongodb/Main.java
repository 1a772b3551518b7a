import java.util.List;

import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;

/** A server that speaks the protocol of MongoDB, with its data in memory. It prints its address. */
public class Main {
    /** The oldest version that drivers still use. All that the tests need of it is there, though the server itself claims an older one. */
    private static final class Version implements MongoVersion {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(4, 4, 0);
        }

        @Override
        public int getWireVersion() {
            return 9;
        }
    }

    public static void main(String[] arguments) throws Exception {
        MemoryBackend backend = new MemoryBackend();
        backend.version(new Version());
        System.out.println("listening on mongodb://127.0.0.1:" + new MongoServer(backend).bind().getPort());
        Thread.currentThread().join();
    }
}
