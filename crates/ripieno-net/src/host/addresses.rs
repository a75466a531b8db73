//! The addresses of this host: usable by peers, loopback, and rejected ones with the reason.

use if_addrs::{IfOperStatus, Interface};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};

/// The addresses of a host, grouped by reachability.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// Addresses that other hosts may reach.
    pub usable: Vec<IpAddr>,
    /// Addresses that only this host can reach.
    pub loopback: Vec<IpAddr>,
    /// Addresses that are offered to no peer.
    pub rejected: Vec<Rejected>,
}

/// An address that is not offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// The address.
    pub address: IpAddr,
    /// The interface or host name that the address belongs to.
    pub owner: String,
    /// The reason why the address is not offered.
    pub cause: String,
}

impl Addresses {
    /// Return the addresses of all interfaces.
    pub fn of_interfaces() -> io::Result<Addresses> {
        let mut addresses = Addresses::default();
        for interface in if_addrs::get_if_addrs()? {
            let down = is_down(&interface).then_some("the interface is down");
            addresses.add(interface.ip(), &interface.name, down);
        }
        Ok(addresses)
    }

    /// Resolve a host name or a literal address.
    pub fn of_name(name: &str) -> io::Result<Addresses> {
        let mut addresses = Addresses::default();
        for address in (name, 0).to_socket_addrs()? {
            addresses.add(address.ip(), name, None);
        }
        Ok(addresses)
    }

    fn add(&mut self, address: IpAddr, owner: &str, down: Option<&str>) {
        let cause = down.or_else(|| unusable(address));
        let known = self.usable.contains(&address) || self.loopback.contains(&address);
        match cause {
            Some(cause) => {
                self.rejected.push(Rejected { address, owner: owner.to_string(), cause: cause.to_string() });
            }
            None if known => {}
            None if address.is_loopback() => self.loopback.push(address),
            None => self.usable.push(address),
        }
    }

    /// Return one sentence that lists every address and why other hosts cannot use it.
    pub fn explain(&self) -> String {
        let loopback =
            self.loopback.iter().map(|address| format!("{address} is loopback, which only this host reaches"));
        let rejected = self.rejected.iter().map(|it| format!("{} of {}: {}", it.address, it.owner, it.cause));
        let all: Vec<String> = loopback.chain(rejected).collect();
        if all.is_empty() { "it has no addresses".to_string() } else { all.join("; ") }
    }
}

fn unusable(address: IpAddr) -> Option<&'static str> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if link_local {
        return Some("link-local, so it is valid only on its interface");
    }
    (address.is_unspecified() || address.is_multicast()).then_some("not the address of a host")
}

// Loopback and tunnel interfaces report an unknown state while they work.
fn is_down(interface: &Interface) -> bool {
    use IfOperStatus::{Down, LowerLayerDown, NotPresent};
    !interface.is_loopback() && matches!(interface.oper_status, Down | LowerLayerDown | NotPresent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_link_local_are_not_offered_to_other_hosts() {
        let mut addresses = Addresses::default();
        for text in ["127.0.0.1", "::1", "169.254.3.4", "fe80::1", "10.0.0.7", "fd00::7"] {
            addresses.add(text.parse().unwrap(), "eth0", None);
        }
        addresses.add("10.9.9.9".parse().unwrap(), "eth1", Some("the interface is down"));
        assert_eq!(addresses.usable, ["10.0.0.7", "fd00::7"].map(|text| text.parse::<IpAddr>().unwrap()));
        let explanation = addresses.explain();
        for text in ["127.0.0.1 is loopback", "fe80::1 of eth0: link-local", "10.9.9.9 of eth1: the interface is down"]
        {
            assert!(explanation.contains(text), "{explanation}");
        }
    }

    #[test]
    fn this_host_has_a_loopback_address() {
        assert!(!Addresses::of_interfaces().unwrap().loopback.is_empty());
        assert!(Addresses::of_name("localhost").unwrap().usable.is_empty());
    }
}
