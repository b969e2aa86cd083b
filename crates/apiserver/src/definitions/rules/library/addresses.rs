//! Addresses: of machines, of networks, of resources.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Made, no_overload};
use crate::definitions::rules::value::{Key, Value};

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::definitions::rules) struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// The address of a resource.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::definitions::rules) struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

fn ip(text: &str) -> Result<IpAddr, String> {
    let why = |what: &str| {
        format!("IP Address {text:?} parse error during conversion from string: {what}")
    };
    let address: IpAddr = text.parse().map_err(|_| why("unable to parse IP"))?;
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => {
            Err(why("IPv4-mapped IPv6 address is not allowed"))
        }
        address => Ok(address),
    }
}

impl Cidr {
    fn parse(text: &str) -> Result<Self, String> {
        let why = |what: &str| {
            format!("network address parse error during conversion from string: {what}")
        };
        let (address, bits) = text.split_once('/').ok_or_else(|| why("no '/'"))?;
        let address = ip(address).map_err(|error| why(&error))?;
        let plain = bits == "0" || !bits.starts_with(['0', '+']);
        let bits: u8 = bits
            .parse()
            .ok()
            .filter(|_| plain)
            .ok_or_else(|| why("bad bits"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if bits > most {
            return Err(why("prefix length out of range"));
        }
        Ok(Self { address, bits })
    }

    fn masked(self) -> Self {
        let cut = |value: u128, width: u32| match width - u32::from(self.bits) {
            128 => 0,
            shift => value >> shift << shift,
        };
        let address = match self.address {
            IpAddr::V4(four) => {
                let bits = cut(u128::from(u32::from(four)), 32);
                IpAddr::V4(u32::try_from(bits).unwrap_or(0).into())
            }
            IpAddr::V6(six) => IpAddr::V6(cut(six.into(), 128).into()),
        };
        Self {
            address,
            bits: self.bits,
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        let other = Self {
            address,
            bits: self.bits,
        };
        self.address.is_ipv4() == address.is_ipv4()
            && self.masked().address == other.masked().address
    }
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        let why = || {
            format!(
                "URL parse error during conversion from string: parse {text:?}: invalid URI for request"
            )
        };
        if text.chars().any(|c| c.is_control() || c == ' ') {
            return Err(why());
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme, Some(rest)),
            None if text.starts_with('/') => ("", None),
            None => return Err(why()),
        };
        let good = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let letter = |c: char| c.is_ascii_alphabetic();
        if rest.is_some() && !(scheme.starts_with(letter) && scheme.chars().all(good)) {
            return Err(why());
        }
        let (host, tail) = match rest {
            Some(rest) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
            None => ("", text),
        };
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }

    /// How long it is.
    pub(super) fn length(&self) -> u64 {
        (self.scheme.len() + self.host.len() + self.path.len() + self.query.len()) as u64
    }

    /// The name and the port; the port may be missing.
    fn parts(&self) -> (&str, &str) {
        if let Some((name, rest)) = self
            .host
            .strip_prefix('[')
            .and_then(|host| host.split_once(']'))
        {
            return (name, rest.strip_prefix(':').unwrap_or(""));
        }
        self.host.rsplit_once(':').unwrap_or((&self.host, ""))
    }

    fn query(&self) -> Value {
        let mut found: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = Key::Text(decoded(name).into());
            found
                .entry(key)
                .or_default()
                .push(Value::text(decoded(value)));
        }
        let entries = found
            .into_iter()
            .map(|(key, values)| (key, Value::list(values)));
        Value::Map(Arc::new(entries.collect()))
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after
            .get(..2)
            .and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            (other, _) => {
                bytes.push(*other);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn call(name: &str, arguments: &[Value]) -> Option<Made> {
    let made = match (name, arguments) {
        ("ip", [Value::Text(text)]) => ip(text).map(Value::Ip),
        ("ip", [Value::Cidr(net)]) => Ok(Value::Ip(net.address)),
        ("isIP", [Value::Text(text)]) => Ok(Value::Bool(ip(text).is_ok())),
        ("ip.isCanonical", [Value::Text(text)]) => {
            ip(text).map(|address| Value::Bool(address.to_string() == **text))
        }
        ("cidr", [Value::Text(text)]) => Cidr::parse(text).map(Value::Cidr),
        ("isCIDR", [Value::Text(text)]) => Ok(Value::Bool(Cidr::parse(text).is_ok())),
        ("url", [Value::Text(text)]) => Url::parse(text).map(|url| Value::Url(Arc::new(url))),
        ("isURL", [Value::Text(text)]) => Ok(Value::Bool(Url::parse(text).is_ok())),
        (_, [Value::Ip(of)]) => return machine(name, *of),
        (_, [Value::Cidr(of), rest @ ..]) => return network(name, *of, rest),
        (_, [Value::Url(of)]) => {
            let text = match name {
                "getScheme" => &of.scheme,
                "getHost" => &of.host,
                "getHostname" => of.parts().0,
                "getPort" => of.parts().1,
                "getEscapedPath" => &of.path,
                "getQuery" => return Some(Ok(of.query())),
                _ => return None,
            };
            Ok(Value::text(text))
        }
        ("ip" | "isIP" | "cidr" | "isCIDR" | "url" | "isURL", _) => Err(no_overload()),
        _ => return None,
    };
    Some(made)
}

fn machine(name: &str, of: IpAddr) -> Option<Made> {
    let link_local = match of {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    let local_group = match of {
        IpAddr::V4(four) => four.octets()[..3] == [224, 0, 0],
        IpAddr::V6(six) => six.is_multicast() && six.segments()[0] & 0xf == 2,
    };
    let broadcast = matches!(of, IpAddr::V4(four) if four.is_broadcast());
    Some(Ok(match name {
        "family" => Value::Int(if of.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(of.is_unspecified()),
        "isLoopback" => Value::Bool(of.is_loopback()),
        "isLinkLocalMulticast" => Value::Bool(local_group),
        "isLinkLocalUnicast" => Value::Bool(link_local),
        "isGlobalUnicast" => Value::Bool(
            !(of.is_unspecified()
                || of.is_loopback()
                || of.is_multicast()
                || link_local
                || broadcast),
        ),
        _ => return None,
    }))
}

fn network(name: &str, of: Cidr, rest: &[Value]) -> Option<Made> {
    Some(match (name, rest) {
        ("containsIP", [Value::Ip(address)]) => Ok(Value::Bool(of.contains(*address))),
        ("containsIP", [Value::Text(text)]) => {
            ip(text).map(|address| Value::Bool(of.contains(address)))
        }
        ("containsCIDR", [other]) => {
            let other = match other {
                Value::Cidr(other) => Ok(*other),
                Value::Text(text) => Cidr::parse(text),
                _ => Err(no_overload()),
            };
            other.map(|other| {
                Value::Bool(other.bits >= of.bits && of.contains(other.masked().address))
            })
        }
        ("masked", []) => Ok(Value::Cidr(of.masked())),
        ("prefixLength", []) => Ok(Value::Int(i64::from(of.bits))),
        _ => return None,
    })
}
