//! The resources that are served, to which requests, and with which details.

use std::borrow::Cow;

use super::accept;
use super::exposition::MetricsFormat;
use super::request::fields;

/// A resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resource {
    /// The dashboard.
    Page,
    /// The data of the dashboard.
    Status,
    Metrics(MetricsFormat),
    /// Makes the browser ask for a user and a password, and redirects to the page.
    SignIn,
}

/// Why a peer may see clients' data, as far as the request tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    Nothing,
    /// The peer is on this machine, and does not ask for another one.
    Local,
    /// The peer knows a user's password.
    SignedIn,
}

/// The resources, and the names under which they are served.
pub(super) struct Site<K, A, B> {
    /// Whether the configuration knows this host name.
    pub is_known: K,
    /// Whether this user with this password may see everything.
    pub admits: A,
    /// The `Content-Security-Policy` of the page.
    pub policy: String,
    pub body: B,
}

/// A [`Site`] with any functions.
pub(super) trait Answers {
    fn is_known(&self, name: &str) -> bool;
    fn admits(&self, user: &[u8], password: &[u8]) -> bool;
    fn policy(&self) -> &str;
    fn body(&self, resource: Resource, trust: Trust) -> Cow<'_, str>;
}

impl<K, A, B> Answers for Site<K, A, B>
where
    K: Fn(&str) -> bool,
    A: Fn(&[u8], &[u8]) -> bool,
    B: Fn(Resource, Trust) -> Cow<'static, str>,
{
    fn is_known(&self, name: &str) -> bool {
        (self.is_known)(name)
    }

    fn admits(&self, user: &[u8], password: &[u8]) -> bool {
        (self.admits)(user, password)
    }

    fn policy(&self) -> &str {
        &self.policy
    }

    fn body(&self, resource: Resource, trust: Trust) -> Cow<'_, str> {
        (self.body)(resource, trust)
    }
}

impl Resource {
    /// The resource under a path.
    pub(super) fn at(path: &str, request: &[u8]) -> Option<Self> {
        match path {
            "/" => Some(Self::Page),
            "/status.json" => Some(Self::Status),
            "/metrics" => {
                let accepted: Vec<String> = fields(request, "accept").collect();
                Some(Self::Metrics(accept::wanted_format(&accepted.join(","))))
            }
            "/sign-in" => Some(Self::SignIn),
            _ => None,
        }
    }

    /// The resource's `Content-Type`.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Page => "text/html; charset=utf-8",
            Self::Status => "application/json",
            Self::Metrics(format) => format.content_type(),
            Self::SignIn => TEXT_TYPE,
        }
    }
}

pub(super) const TEXT_TYPE: &str = "text/plain; charset=utf-8";
