package forward_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	gwebsocket "github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/nvidia/nvsentinel/cli/internal/forward"
	"github.com/nvidia/nvsentinel/cli/internal/forward/forwardtest"
)

const namespace = "suite"

// standIn stands for an API server and the kubelets behind it.
type standIn struct {
	t *testing.T
	// webSocket is true if it forwards over WebSocket, false for SPDY alone.
	webSocket bool
	// refuses is the answer to who lists pods, and to who forwards a port.
	refusesList, refusesForward string

	mu   sync.Mutex
	pods []corev1.Pod
	// behind are the addresses of the pods' ports.
	behind   map[string]string
	tunnels  map[string][]httpstream.Connection
	requests []string
}

// add adds a Ready gateway; address is where its port leads.
func (s *standIn) add(name, address string, edit ...func(*corev1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	for _, e := range edit {
		e(&p)
	}
	if s.behind == nil {
		s.behind, s.tunnels = map[string]string{}, map[string][]httpstream.Connection{}
	}
	s.pods, s.behind[name] = append(s.pods, p), address
}

// lose takes a pod away, with the tunnels into it.
func (s *standIn) lose(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []corev1.Pod
	for _, p := range s.pods {
		if p.Name != name {
			left = append(left, p)
		}
	}
	s.pods = left
	for _, c := range s.tunnels[name] {
		_ = c.Close()
	}
}

// inside returns the pod into which the last tunnel led.
func (s *standIn) inside() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		return ""
	}
	return s.requests[len(s.requests)-1]
}

// gateways looks through it.
func (s *standIn) gateways() *forward.Gateways {
	server := httptest.NewServer(s)
	s.t.Cleanup(server.Close)
	rc := &rest.Config{Host: server.URL}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		s.t.Fatal(err)
	}
	g := &forward.Gateways{Pods: client.CoreV1(), Namespace: namespace, Tunnels: forward.APIServer{Config: rc, REST: client.CoreV1().RESTClient(), Namespace: namespace}}
	s.t.Cleanup(g.Close)
	return g
}

// ServeHTTP implements http.Handler.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const pods = "/api/v1/namespaces/" + namespace + "/pods"
	name, forwards := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, pods+"/"), "/portforward")
	switch {
	case r.URL.Path == pods && s.refusesList != "":
		refuse(w, s.refusesList)
	case r.URL.Path == pods:
		s.mu.Lock()
		defer s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: s.pods})
	case !forwards:
		http.NotFound(w, r)
	case s.refusesForward != "":
		refuse(w, s.refusesForward)
	case gwebsocket.IsWebSocketUpgrade(r) && !s.webSocket:
		http.Error(w, "no WebSocket here", http.StatusBadRequest)
	default:
		s.forward(w, r, name)
	}
}

func refuse(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message})
}

func (s *standIn) forward(w http.ResponseWriter, r *http.Request, pod string) {
	conn, err := forwardtest.Upgrade(w, r, s.webSocket, func(port string) (net.Conn, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if only, bound := strings.CutPrefix(s.behind[pod], "only "); bound && only != port {
			return nil, fmt.Errorf("connection refused: port %s", port)
		}
		return net.Dial("tcp", s.behind[pod])
	})
	if err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	s.tunnels[pod], s.requests = append(s.tunnels[pod], conn), append(s.requests, pod)
	s.mu.Unlock()
	<-conn.CloseChan()
}
