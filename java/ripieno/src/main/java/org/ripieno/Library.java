package org.ripieno;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Loads the native library out of the jar.
 *
 * <p>A copy has a name of its own, so that several class loaders, as Spark makes them for jars of its sessions, each
 * load theirs. Where the folder of temporary files is mounted without the right to execute, the working and the home
 * folder are tried.
 */
final class Library {
  /** Names a library to load instead, for who builds it. */
  static final String PROPERTY = "ripieno.library";

  private Library() {}

  static void load() {
    String named = System.getProperty(PROPERTY);
    if (named != null) {
      System.load(Path.of(named).toAbsolutePath().toString());
      return;
    }
    String resource = "/lib/" + system() + "/" + architecture() + "/libripieno_jni.so";
    List<String> tried = new ArrayList<>();
    for (String folder : new String[] {System.getProperty("java.io.tmpdir"), ".", System.getProperty("user.home")}) {
      Path copy = null;
      try {
        copy = copyOf(resource, new File(folder).toPath());
        System.load(copy.toAbsolutePath().toString());
        return;
      } catch (IOException | UnsatisfiedLinkError error) {
        tried.add(folder + ": " + error.getMessage());
      } finally {
        // Loaded, it needs no name any more.
        if (copy != null && !copy.toFile().delete()) {
          copy.toFile().deleteOnExit();
        }
      }
    }
    throw new UnsatisfiedLinkError(
        "ripieno's native library could not be loaded ("
            + String.join("; ", tried)
            + "): expected a folder that may hold executable files, by -Djava.io.tmpdir");
  }

  private static Path copyOf(String resource, Path folder) throws IOException {
    try (InputStream from = Library.class.getResourceAsStream(resource)) {
      if (from == null) {
        throw new UnsatisfiedLinkError("the jar has no " + resource + ": ripieno has no library for this machine");
      }
      Path copy = Files.createTempFile(folder, "libripieno_jni", ".so");
      Files.copy(from, copy, StandardCopyOption.REPLACE_EXISTING);
      return copy;
    }
  }

  private static String system() {
    return System.getProperty("os.name").toLowerCase(Locale.ROOT);
  }

  private static String architecture() {
    String name = System.getProperty("os.arch");
    return name.equals("amd64") ? "x86_64" : name;
  }
}
