package provider

import (
	"net"
	"strings"
)

// ClearText is the warning about a store that is reached without TLS.
const ClearText = "the store is reached over a network without TLS: records and the password can be read and changed on the way"

// OnNetwork says whether a connection to a host leaves this machine: it is
// neither a Unix socket nor a loopback address.
func OnNetwork(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || strings.EqualFold(host, "localhost") {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}
