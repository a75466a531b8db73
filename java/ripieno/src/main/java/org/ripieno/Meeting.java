package org.ripieno;

import java.nio.file.Path;
import java.time.Duration;

/**
 * What a rank says of itself before it meets the others: {@code Communicator.meeting(rank, size,
 * token).rack("r1").over(exchange)}.
 */
public final class Meeting {
  private final int rank;
  private final int size;
  private final String token;
  private String host;
  private String rack;
  private int firstPort;
  private int lastPort;
  private Links links = Links.AUTO;
  private int tls = Native.UNSET;
  private Duration rendezvousTimeout = Duration.ofSeconds(60);
  private Duration heartbeatTimeout = Duration.ofSeconds(10);

  Meeting(int rank, int size, String token) {
    if (token == null || token.isEmpty()) {
      throw new InputException("token is empty: expected a secret that all ranks of the job know, and nobody else");
    }
    this.rank = rank;
    this.size = size;
    this.token = token;
  }

  /** The name or address to listen on; all that are up unless it is set. */
  public Meeting host(String host) {
    this.host = host;
    return this;
  }

  /** The rack that the host stands in; all ranks name theirs, or none does. */
  public Meeting rack(String rack) {
    this.rack = rack;
    return this;
  }

  /** The ports to listen on, from the first to the last; any free one unless they are set. */
  public Meeting ports(int first, int last) {
    this.firstPort = checkedPort(first);
    this.lastPort = checkedPort(last);
    return this;
  }

  /** What carries data between ranks of one host. */
  public Meeting links(Links links) {
    this.links = links;
    return this;
  }

  /** Whether TCP connections are encrypted, all or none; unless it is set, those between hosts are. */
  public Meeting tls(boolean isEncrypted) {
    this.tls = isEncrypted ? 1 : 0;
    return this;
  }

  /** How long ranks wait for each other to come; a minute unless it is set. */
  public Meeting rendezvousTimeout(Duration timeout) {
    this.rendezvousTimeout = timeout;
    return this;
  }

  /** A rank that is silent for so long has failed; ten seconds unless it is set. */
  public Meeting heartbeatTimeout(Duration timeout) {
    this.heartbeatTimeout = timeout;
    return this;
  }

  /**
   * Meets over an engine's exchange of strings.
   *
   * @throws RendezvousException if the ranks do not meet in time
   * @throws InputException if something that was set cannot be right
   */
  public Communicator over(Exchange exchange) {
    return meet(exchange, null, null, 0);
  }

  /** Meets over a folder that all ranks see; nobody else may write to it. */
  public Communicator over(Path folder) {
    return meet(null, folder.toString(), null, 0);
  }

  /** Meets at a store that rank 0 keeps at this host and port. */
  public Communicator at(String host, int port) {
    return meet(null, null, host, checkedPort(port));
  }

  private Communicator meet(Exchange exchange, String folder, String storeHost, int storePort) {
    if (rank < 0 || size < 1) {
      throw new InputException("rank=" + rank + ", size=" + size + ": expected 0 <= rank < size");
    }
    long address =
        Native.meet(
            rank,
            size,
            token,
            host,
            rack,
            firstPort,
            lastPort,
            links.ordinal(),
            tls,
            rendezvousTimeout.toMillis(),
            heartbeatTimeout.toMillis(),
            exchange,
            folder,
            storeHost,
            storePort);
    return new Communicator(address, rank, size);
  }

  private static int checkedPort(int port) {
    if (port < 0 || port > 65535) {
      throw new InputException("port=" + port + ": expected 0 to 65535");
    }
    return port;
  }
}
