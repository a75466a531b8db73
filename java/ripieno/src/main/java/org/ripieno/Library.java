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
 * Loads the native library from the jar.
 *
 * <p>Each load copies the library to a file with a unique name, because only one class loader can load a file. Spark,
 * for example, has one class loader per session. The directory for temporary files may be mounted noexec; then the
 * class tries the working directory and the home directory.
 */
final class Library {
  /** System property with the path of another library to load, for development. */
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
        // The loaded library does not need the file.
        if (copy != null && !copy.toFile().delete()) {
          copy.toFile().deleteOnExit();
        }
      }
    }
    throw new UnsatisfiedLinkError(
        "ripieno's native library could not be loaded ("
            + String.join("; ", tried)
            + "): set -Djava.io.tmpdir to a directory that permits executable files");
  }

  private static Path copyOf(String resource, Path folder) throws IOException {
    try (InputStream from = Library.class.getResourceAsStream(resource)) {
      if (from == null) {
        throw new UnsatisfiedLinkError("the jar has no " + resource + ": ripieno does not support this machine");
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
