package config

import (
	"fmt"
	"net"
	"net/url"
)

// Private reports whether a secret may be sent to a URL: nobody on a network can read it
// on its way, because it goes by https or stays on this host.
func Private(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// CheckOrigin is the error of a key whose URL gets a token, unless it is empty or
// Private.
func CheckOrigin(key, origin string) error {
	u, err := url.Parse(origin)
	if origin == "" || err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && Private(u)) {
		return nil
	}
	return fmt.Errorf("%s is %q: must be https://HOST, because tokens are not sent over a network in plain text", key, origin)
}
