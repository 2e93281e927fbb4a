package config

import (
	"net"
	"net/url"
)

// Private says whether a secret may be sent to a URL: nobody on a network can read it
// on its way, because it goes by https or stays on this host.
func Private(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
