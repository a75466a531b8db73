import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.logging.LogManager;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.service.CompositeService;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.ResourceManager;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler;
import sun.misc.Signal;

/**
 * A complete Hadoop in one process: HDFS with one data node, YARN with two node managers, every port on 127.0.0.1.
 *
 * Prints the environment variables for its users, then "ready". Ends when its standard input ends, or when it is
 * interrupted. All files are in a temporary folder, the parent of HADOOP_CONF_DIR, which is deleted at the end. In it,
 * hadoop.log has the warnings of the services, and node0/log and node1/log have the output of containers.
 */
public final class MiniHadoop {
    private static final String LOOPBACK = "127.0.0.1";
    private static final int NODE_MANAGERS = 2;
    private static final int NODE_MEMORY_MB = 4096;
    private static final int NODE_CORES = 4;

    public static void main(String[] arguments) {
        try {
            Path folder = Files.createTempDirectory("mini-hadoop");
            try {
                run(folder);
            } finally {
                FileUtil.fullyDelete(folder.toFile());
            }
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            // Started services would keep the process alive.
            System.exit(1);
        }
    }

    private static void run(Path folder) throws Exception {
        System.setProperty("mini-hadoop.log", folder.resolve("hadoop.log").toString());
        // Guice warns on stderr that two web servers run in one process.
        LogManager.getLogManager().reset();
        DefaultMetricsSystem.setMiniClusterMode(true);
        CountDownLatch ended = endOfInputOrSignal();

        MiniDFSCluster hdfs = startHdfs(folder);
        Configuration configuration = yarnConfiguration(hdfs);
        try (Yarn yarn = new Yarn(folder)) {
            yarn.init(configuration);
            yarn.start();

            String hdfsWeb = LOOPBACK + ":" + hdfs.getNameNode().getHttpAddress().getPort();
            export("HADOOP_CONF_DIR", writeConfiguration(configuration, folder.resolve("conf")));
            export("HDFS", hdfs.getURI());
            export("WEBHDFS", "webhdfs://" + hdfsWeb);
            export("HDFS_WEB", "http://" + hdfsWeb);
            export("YARN_WEB", "http://" + configuration.get(YarnConfiguration.RM_WEBAPP_ADDRESS));
            // Keep Spark's driver on loopback, too.
            export("SPARK_LOCAL_IP", LOOPBACK);
            System.out.println("ready");
            ended.await();
        } finally {
            hdfs.shutdown();
        }
    }

    /** Opens when the parent closes the other end of the standard input, or sends a signal. */
    private static CountDownLatch endOfInputOrSignal() {
        CountDownLatch ended = new CountDownLatch(1);
        for (String name : new String[] {"INT", "TERM"}) {
            Signal.handle(new Signal(name), signal -> ended.countDown());
        }
        Thread reader = new Thread(() -> {
            try (InputStream input = System.in) {
                input.transferTo(OutputStream.nullOutputStream());
            } catch (IOException error) {
                System.err.println("standard input: " + error);
            } finally {
                ended.countDown();
            }
        }, "standard input");
        reader.setDaemon(true);
        reader.start();
        return ended;
    }

    private static void export(String name, Object value) {
        System.out.println("export " + name + "=" + value);
    }

    private static MiniDFSCluster startHdfs(Path folder) throws IOException {
        Configuration configuration = new HdfsConfiguration();
        configuration.set("hadoop.tmp.dir", folder.resolve("tmp").toString());
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, folder.resolve("hdfs").toString());
        // All users may write everywhere.
        configuration.setBoolean("dfs.permissions.enabled", false);
        configuration.setInt("dfs.replication", 1);
        MiniDFSCluster hdfs = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
        hdfs.waitActive();
        return hdfs;
    }

    private static Configuration yarnConfiguration(MiniDFSCluster hdfs) throws IOException {
        Configuration configuration = new YarnConfiguration(hdfs.getConfiguration(0));
        configuration.set("fs.defaultFS", hdfs.getURI().toString());
        // The mini cluster of HDFS sets a class here that clients lack.
        configuration.unset("net.topology.node.switch.mapping.impl");

        for (String service : new String[] {"", ".scheduler", ".admin", ".resource-tracker", ".webapp"}) {
            configuration.set("yarn.resourcemanager" + service + ".address", LOOPBACK + ":0");
        }
        configuration.set("yarn.resourcemanager.hostname", LOOPBACK);
        // The resource manager stores the port of its web server here, too.
        configuration.setBoolean(YarnConfiguration.IS_MINI_YARN_CLUSTER, true);
        configuration.setClass("yarn.resourcemanager.scheduler.class", CapacityScheduler.class, Object.class);
        configuration.set("yarn.scheduler.capacity.root.queues", "default");
        configuration.set("yarn.scheduler.capacity.root.default.capacity", "100");
        configuration.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.9");
        configuration.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        configuration.setInt("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", 100);
        // By default all resource managers of a user share one folder for these, and conflict.
        for (String kept : new String[] {"node-attribute", "node-labels"}) {
            configuration.set("yarn." + kept + ".fs-store.root-dir",
                    Path.of(configuration.get("hadoop.tmp.dir"), kept).toUri().toString());
        }

        configuration.setInt("yarn.nodemanager.resource.memory-mb", NODE_MEMORY_MB);
        configuration.setInt("yarn.nodemanager.resource.cpu-vcores", NODE_CORES);
        configuration.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        configuration.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        // Accept nearly full disks.
        configuration.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
        // Node managers do not end while application logs wait for deletion. No delay, but the logs are kept.
        configuration.setInt("yarn.nodemanager.log.retain-seconds", 0);
        configuration.setInt("yarn.nodemanager.delete.debug-delay-sec", 24 * 3600);
        configuration.setInt("yarn.nodemanager.process-kill-wait.ms", 500);
        // Containers get the class path of the application, not the class path of this process.
        configuration.set("yarn.application.classpath", "");
        return configuration;
    }

    /** Writes the configuration of the running services, including ports, where clients look for it. */
    private static Path writeConfiguration(Configuration configuration, Path folder) throws IOException {
        Files.createDirectories(folder);
        for (String name : new String[] {"core-site.xml", "hdfs-site.xml", "yarn-site.xml"}) {
            try (OutputStream file = Files.newOutputStream(folder.resolve(name))) {
                configuration.writeXml(file);
            }
        }
        return folder;
    }

    /** The resource manager and its node managers, which read its ports from the shared configuration. */
    private static final class Yarn extends CompositeService {
        private final Path folder;

        Yarn(Path folder) {
            super("yarn");
            this.folder = folder;
        }

        @Override
        protected void serviceInit(Configuration configuration) throws Exception {
            addService(new ResourceManager());
            super.serviceInit(configuration);
        }

        @Override
        protected void serviceStart() throws Exception {
            super.serviceStart();
            for (int node = 0; node < NODE_MANAGERS; node++) {
                NodeManager manager = new NodeManager();
                addService(manager);
                manager.init(nodeConfiguration(getConfig(), folder.resolve("node" + node)));
                manager.start();
            }
        }

        private static Configuration nodeConfiguration(Configuration shared, Path folder) {
            Configuration configuration = new YarnConfiguration(shared);
            configuration.set("yarn.nodemanager.hostname", LOOPBACK);
            for (String service : new String[] {"", ".localizer", ".webapp", ".collector-service"}) {
                configuration.set("yarn.nodemanager" + service + ".address", LOOPBACK + ":0");
            }
            configuration.set("yarn.nodemanager.local-dirs", folder.resolve("local").toString());
            configuration.set("yarn.nodemanager.log-dirs", folder.resolve("log").toString());
            return configuration;
        }
    }
}
