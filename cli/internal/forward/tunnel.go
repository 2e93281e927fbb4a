package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// APIServer opens tunnels through an API server, over WebSocket or, where that is
// refused, SPDY.
type APIServer struct {
	Config *rest.Config
	// REST is a client of core/v1, for the addresses.
	REST      rest.Interface
	Namespace string
}

// Open implements Tunnels.
func (a APIServer) Open(ctx context.Context, pod string) (httpstream.Connection, error) {
	address := a.REST.Post().Resource("pods").Namespace(a.Namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(a.Config)
	if err != nil {
		return nil, err
	}
	first, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, a.Config)
	if err != nil {
		return nil, err
	}
	second := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	dialer := portforward.NewFallbackDialerForStreaming(first, second, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	type opened struct {
		conn httpstream.Connection
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		done <- opened{conn, err}
	}()
	select {
	case o := <-done:
		return o.conn, o.err
	case <-ctx.Done(): // the dialer knows no context
		go func() {
			if o := <-done; o.err == nil {
				_ = o.conn.Close()
			}
		}()
		return nil, fmt.Errorf("opening a tunnel: %w", ctx.Err())
	}
}

// tunnel leads to one port of a pod.
type tunnel struct {
	conn  httpstream.Connection
	port  int32
	count atomic.Int64
}

// open reports whether the tunnel has not ended.
func (t *tunnel) open() bool {
	select {
	case <-t.conn.CloseChan():
		return false
	default:
		return true
	}
}

// dial connects to the port; if nobody listens there, the first read returns the error.
func (t *tunnel) dial(context.Context) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(t.port)))
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.FormatInt(t.count.Add(1), 10))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := t.conn.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	_ = problems.Close() // nothing is written there
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := t.conn.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening a stream: %w", err), problems.Reset())
	}
	c := &connection{Stream: data, tunnel: t, problems: problems, remoteError: make(chan string, 1)}
	go func() {
		text, _ := io.ReadAll(io.LimitReader(problems, 4<<10)) // if the text is cut off, its begin is reported
		c.remoteError <- string(text)
	}()
	return c, nil
}

// connection is one connection to the port.
type connection struct {
	httpstream.Stream
	tunnel   *tunnel
	problems httpstream.Stream
	// remoteError gets what the other end reports about a failure, when it has closed.
	remoteError chan string
	// awaitingReply is true while something was written that was not answered yet.
	awaitingReply atomic.Bool
}

// Read implements net.Conn. An end for which the other end has a reason is that reason.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if n > 0 {
		c.awaitingReply.Store(false)
	}
	if err == nil {
		return n, nil
	}
	text := <-c.remoteError // it closes with the data
	c.remoteError <- text
	if text != "" {
		err = closed{c.tunnel.port, text}
	}
	return n, err
}

// closed is a port that a gateway's pod could not be reached at.
type closed struct {
	port int32
	text string
}

// Error names what to check.
func (c closed) Error() string {
	return fmt.Sprintf("the gateway does not serve its store at port %d: check that its version is at least that of nvsentinel, that its --inspect-address is set to this port, and that it has started (%s)", c.port, c.text)
}

// Write implements net.Conn.
func (c *connection) Write(p []byte) (int, error) {
	c.awaitingReply.Store(true)
	return c.Stream.Write(p)
}

// Close implements net.Conn. A question without an answer may be one to a pod that is
// gone, of which the tunnel knows nothing: it ends too.
func (c *connection) Close() error {
	if c.awaitingReply.Load() {
		return c.tunnel.conn.Close()
	}
	c.tunnel.conn.RemoveStreams(c.Stream, c.problems)
	return errors.Join(c.Reset(), c.problems.Reset())
}

// LocalAddr implements net.Conn.
func (c *connection) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements net.Conn.
func (c *connection) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline implements net.Conn: there is none, who asks has a context.
func (c *connection) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn.
func (c *connection) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn.
func (c *connection) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
