// Package forwardtest forwards ports as an API server and the kubelet behind it do.
package forwardtest

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	gwebsocket "github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Upgrade makes a request for a forwarded port a tunnel, over WebSocket or SPDY,
// whose connections lead where dial connects them.
func Upgrade(w http.ResponseWriter, r *http.Request, webSocket bool, dial func(port string) (net.Conn, error)) (httpstream.Connection, error) {
	k := &kubelet{dial: dial, problems: map[string]httpstream.Stream{}}
	if !webSocket {
		w.Header().Set(httpstream.HeaderProtocolVersion, portforward.PortForwardProtocolV1Name)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, k.stream)
		if conn == nil {
			return nil, errors.New("no upgrade to SPDY")
		}
		return conn, nil
	}
	up := gwebsocket.Upgrader{Subprotocols: []string{"SPDY/3.1+" + portforward.PortForwardProtocolV1Name}}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return nil, err
	}
	return spdy.NewServerConnection(portforward.NewTunnelingConnection("server", ws), k.stream)
}

// kubelet is the end of one tunnel.
type kubelet struct {
	dial func(port string) (net.Conn, error)

	mu       sync.Mutex
	problems map[string]httpstream.Stream
}

// stream takes the stream of a connection's problems, and then that of its data.
func (k *kubelet) stream(s httpstream.Stream, replied <-chan struct{}) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := s.Headers().Get(corev1.PortForwardRequestIDHeader)
	if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
		k.problems[id] = s
		return nil
	}
	problem := k.problems[id]
	delete(k.problems, id)
	go func() {
		<-replied
		k.forward(s, problem)
	}()
	return nil
}

// forward copies in both directions, and ends as a kubelet does: what went wrong is
// reported before the data ends. Errors of copying are ends.
func (k *kubelet) forward(data, problem httpstream.Stream) {
	defer data.Close()
	defer problem.Close()
	c, err := k.dial(data.Headers().Get(corev1.PortHeader))
	if err != nil {
		_, _ = io.WriteString(problem, err.Error())
		return
	}
	defer c.Close()
	go func() { _, _ = io.Copy(c, data) }()
	_, _ = io.Copy(data, c)
}
