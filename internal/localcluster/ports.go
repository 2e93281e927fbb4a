package localcluster

import (
	"net"
	"strconv"
)

// localhost is where everything serves, by default.
const localhost = "127.0.0.1"

func loopback(port int) string { return net.JoinHostPort(localhost, strconv.Itoa(port)) }
