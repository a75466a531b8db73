package org.ripieno;

import java.nio.file.Path;
import java.time.Duration;

/**
 * Builder that connects a rank to the other ranks: {@code Communicator.rendezvous(rank, size,
 * token).rack("r1").over(exchange)}.
 */
public final class Rendezvous {
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

  Rendezvous(int rank, int size, String token) {
    if (token == null || token.isEmpty()) {
      throw new InputException("token is empty: expected a secret that only the ranks of the job know");
    }
    this.rank = rank;
    this.size = size;
    this.token = token;
  }

  /** Set the host name or address to listen on; default: all interfaces that are up. */
  public Rendezvous host(String host) {
    this.host = host;
    return this;
  }

  /** Set the rack of this host. All ranks must set it, or none. */
  public Rendezvous rack(String rack) {
    this.rack = rack;
    return this;
  }

  /** Set the range of ports to listen on, inclusive; default: any free port. */
  public Rendezvous ports(int first, int last) {
    this.firstPort = checkedPort(first);
    this.lastPort = checkedPort(last);
    return this;
  }

  /** Set the kind of links between ranks of one host. */
  public Rendezvous links(Links links) {
    this.links = links;
    return this;
  }

  /** Set whether all TCP connections are encrypted, or none; default: only connections between hosts. */
  public Rendezvous tls(boolean isEncrypted) {
    this.tls = isEncrypted ? 1 : 0;
    return this;
  }

  /** Set the maximum time that ranks wait for each other; default: one minute. */
  public Rendezvous rendezvousTimeout(Duration timeout) {
    this.rendezvousTimeout = timeout;
    return this;
  }

  /** Set the time without a heartbeat after which a rank has failed; default: ten seconds. */
  public Rendezvous heartbeatTimeout(Duration timeout) {
    this.heartbeatTimeout = timeout;
    return this;
  }

  /**
   * Connect through an engine's exchange of strings.
   *
   * @throws RendezvousException if the ranks do not connect in time
   * @throws InputException if a setting is invalid
   */
  public Communicator over(Exchange exchange) {
    return connect(exchange, null, null, 0);
  }

  /** Connect through a directory that all ranks can access and no other user can write. */
  public Communicator over(Path folder) {
    return connect(null, folder.toString(), null, 0);
  }

  /** Connect through a TCP store that rank 0 runs at this host and port. */
  public Communicator at(String host, int port) {
    return connect(null, null, host, checkedPort(port));
  }

  private Communicator connect(Exchange exchange, String folder, String storeHost, int storePort) {
    if (rank < 0 || size < 1) {
      throw new InputException("rank=" + rank + ", size=" + size + ": expected 0 <= rank < size");
    }
    long address =
        Native.connect(
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
    return new Communicator(address);
  }

  private static int checkedPort(int port) {
    if (port < 0 || port > 65535) {
      throw new InputException("port=" + port + ": expected 0 to 65535");
    }
    return port;
  }
}
