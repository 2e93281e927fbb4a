package gateway

import (
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/retry"
)

// Bounds of connections.
const (
	// introduction is how long a connection may be open before a token was verified
	// on it.
	introduction = 30 * time.Second
	// closeDelay is how long a refused connection stays open after its peer got the reason.
	closeDelay = 5 * time.Second
	// sweep is the time between two looks for connections whose time is over.
	sweep = 5 * time.Second
	// maxUnread is how many bytes of answers a connection may have that it has not been
	// able to send, because its peer reads nothing, when it is to send another one.
	maxUnread = 4 << 20
	// logAgain is the time between two lines of the log about the same refusal.
	logAgain = time.Minute
)

// Limits of connections.
type Limits struct {
	// Connections bounds all of them, PerNode those on which a node has shown its
	// token, PerAddress those of an address on which nobody has yet.
	Connections, PerNode, PerAddress int
}

// Refused is why a connection is refused or ended. It is the label value of a counter.
type Refused string

// Reasons of a refusal.
const (
	// TooMany is one connection more than the gateway may have: the oldest on which no
	// token was verified is closed for it, and if there is none, it is itself.
	TooMany Refused = "gateway"
	// ManyOfAddress is one more from an address with many on which no token was
	// verified yet. It gets the reason; as many again are closed at once.
	ManyOfAddress Refused = "address"
	// ManyOfNode is one more of a node. It gets the reason.
	ManyOfNode Refused = "node"
	// Anonymous is one on which no token was verified in time. It is closed.
	Anonymous Refused = "anonymous"
	// Unread is one whose peer does not read the answers. It is closed.
	Unread Refused = "unread"
)

// RefusedReasons lists every reason, in a fixed order.
func RefusedReasons() []Refused {
	return []Refused{TooMany, ManyOfAddress, ManyOfNode, Anonymous, Unread}
}

// connections is a listener that bounds what it accepts.
type connections struct {
	net.Listener
	limits  Limits
	metrics *Metrics
	clock   clock.WithTicker
	log     *slog.Logger

	mu        sync.Mutex
	total     int
	strangers map[string]int // by address
	nodes     map[string]int
	unknown   *list.List // all on which no token was verified, in the order of coming
	logged    map[Refused]time.Time
}

func newConnections(l net.Listener, limits Limits, g *Gateway) *connections {
	return &connections{
		Listener: l, limits: limits, metrics: g.Metrics, clock: g.Clock, log: g.Log,
		strangers: map[string]int{}, nodes: map[string]int{}, unknown: list.New(), logged: map[Refused]time.Time{},
	}
}

// Accept waits for a connection for which there is capacity.
func (s *connections) Accept() (net.Conn, error) {
	for {
		raw, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn, left := s.admit(raw)
		if left != nil {
			_ = left.Conn.Close()
		}
		if conn != nil {
			return conn, nil
		}
		_ = raw.Close() // before a handshake no reason can be sent
	}
}

// admit counts a connection, or returns nil. left is one that has to end for it: who
// fills the gateway with connections keeps nobody out who shows a token at once.
func (s *connections) admit(raw net.Conn) (conn, left *connection) {
	host, _, err := net.SplitHostPort(raw.RemoteAddr().String())
	if err != nil {
		host = raw.RemoteAddr().String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strangers[host] >= 2*s.limits.PerAddress {
		s.refuse(ManyOfAddress, "connections", s.strangers[host], "address", host)
		return nil, nil
	}
	if s.total >= s.limits.Connections {
		s.refuse(TooMany, "connections", s.total, "address", host)
		if left = s.oldest(); left == nil {
			return nil, nil
		}
		s.leave(left)
	}
	conn = &connection{Conn: raw, of: s, address: host, until: s.clock.Now().Add(introduction)}
	if s.strangers[host] >= s.limits.PerAddress {
		s.refuse(ManyOfAddress, "connections", s.strangers[host], "address", host)
		conn.refused = fmt.Sprintf("%d connections from %s have not sent a valid token yet, at most %d are allowed: "+
			"if the nodes share an address, raise gateway.connectionsPerAddress (--gateway-connections-per-address)", s.strangers[host], host, s.limits.PerAddress)
	}
	s.total++
	s.strangers[host]++
	s.metrics.connections.Set(float64(s.total))
	conn.place = s.unknown.PushBack(conn)
	return conn, left
}

// oldest is the connection that has shown no token for the longest time, or nil.
func (s *connections) oldest() *connection {
	if first := s.unknown.Front(); first != nil {
		return of(first)
	}
	return nil
}

func of(place *list.Element) *connection {
	return place.Value.(*connection) //nolint:forcetypeassert // nothing else is in the list
}

// refuse counts a refusal, and logs it unless one for the same reason was logged lately.
func (s *connections) refuse(why Refused, facts ...any) {
	s.metrics.turnedAway.WithLabelValues(string(why)).Inc()
	now := s.clock.Now()
	if last, ok := s.logged[why]; ok && now.Sub(last) < logAgain {
		return
	}
	s.logged[why] = now
	s.log.Warn("connection rejected, further ones with the same reason are only counted for a while", append([]any{"reason", why}, facts...)...)
}

// connection is one that is counted. Fields other than the unread bytes are guarded by
// its listener's lock.
type connection struct {
	net.Conn
	of       *connections
	address  string
	node     string // that has shown its token; empty until then
	refused  string // why its calls are refused, for its peer
	notified bool   // that
	closed   bool
	until    time.Time // it ends then, unless its node is known
	place    *list.Element
	// unread is what was handed to gRPC and not to the network yet, about.
	unread atomic.Int64
	// stored is what is known to be stored of its node's records.
	stored storedRecords
}

// identify notes whose connection it is, by a token that was verified. Its error is for
// the caller.
func (c *connection) identify(node string) error {
	s := c.of
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.node != "" || c.closed:
		return nil
	case c.refused != "":
	case s.nodes[node] >= s.limits.PerNode:
		s.refuse(ManyOfNode, "connections", s.nodes[node], "node", node)
		c.refused = fmt.Sprintf("node %s has %d connections, at most %d are allowed", node, s.nodes[node], s.limits.PerNode)
	default:
		s.markVerified(c)
		c.node = node
		s.nodes[node]++
		return nil
	}
	if !c.notified {
		c.notified = true
		c.until = s.clock.Now().Add(closeDelay)
	}
	return later(time.Minute, "the gateway is closing this connection: %s", c.refused)
}

// origin is who is held responsible for a token that is refused: the node whose
// connection it is, or the address.
func (c *connection) origin() string {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.node != "" {
		return "node " + c.node
	}
	return c.address
}

// markVerified takes a connection from those on which no token was verified.
func (s *connections) markVerified(c *connection) {
	s.unknown.Remove(c.place)
	if s.strangers[c.address]--; s.strangers[c.address] == 0 {
		delete(s.strangers, c.address)
	}
}

// watch ends connections on which nobody has shown a valid token in time, until ctx ends.
func (s *connections) watch(ctx context.Context) {
	retry.Every(ctx, s.clock, sweep, func() {
		for _, c := range s.overdue() {
			_ = c.Close()
		}
	})
}

func (s *connections) overdue() []*connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*connection
	now := s.clock.Now()
	for place := s.unknown.Front(); place != nil; place = place.Next() {
		c := of(place)
		if now.Before(c.until) {
			continue
		}
		if c.refused == "" {
			s.refuse(Anonymous, "address", c.address)
		}
		out = append(out, c)
	}
	return out
}

// answer notes bytes of an answer that is about to be handed to gRPC, which keeps it until
// the peer reads. A peer that has left too many bytes unread is left.
func (c *connection) answer(n int) error {
	if c.unread.Load() <= maxUnread {
		c.unread.Add(int64(n))
		return nil
	}
	c.of.mu.Lock()
	c.of.refuse(Unread, "node", c.node, "address", c.address)
	c.of.mu.Unlock()
	_ = c.Close()
	return status.Error(codes.ResourceExhausted, "earlier responses on this connection were not read")
}

// Write sends bytes, among them those of answers.
func (c *connection) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	for {
		unread := c.unread.Load()
		if c.unread.CompareAndSwap(unread, max(unread-int64(n), 0)) {
			return n, err
		}
	}
}

// Close ends it.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.leave(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// leave no longer counts a connection.
func (s *connections) leave(c *connection) {
	if c.closed {
		return
	}
	c.closed = true
	s.total--
	if c.node == "" {
		s.markVerified(c)
	} else if s.nodes[c.node]--; s.nodes[c.node] == 0 {
		delete(s.nodes, c.node)
	}
	s.metrics.connections.Set(float64(s.total))
}

// identifying are credentials that let a call know its connection.
type identifying struct {
	credentials.TransportCredentials
}

// channel is what a call knows of its connection.
type channel struct {
	credentials.AuthInfo
	conn *connection
}

// ServerHandshake proves the gateway.
func (i identifying) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := i.TransportCredentials.ServerHandshake(raw)
	counted, ok := raw.(*connection)
	if err != nil || !ok {
		return conn, info, err
	}
	return conn, channel{info, counted}, nil
}

// Clone returns the same credentials.
func (i identifying) Clone() credentials.TransportCredentials {
	return identifying{i.TransportCredentials.Clone()}
}

// connectionOf is the connection of a call, or nil.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(channel); ok {
			return c.conn
		}
	}
	return nil
}
