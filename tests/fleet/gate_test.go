package fleet

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// gated is a gate before a server that answers a watch with one event, and
// everything else with the caller's token.
func gated(t *testing.T) (*Gate, *http.Client) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprint(w, r.Header.Get("Authorization"))
			return
		}
		fmt.Fprint(w, "event")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, content := range map[string][]byte{
		"apiserver.crt": cert, "apiserver.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, err := startGate(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: cert}}, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.stop(); err != nil {
			t.Error(err)
		}
	})
	return g, server.Client()
}

func get(t *testing.T, client *http.Client, url string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer me")
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

func TestGateDelaysWatchesOnly(t *testing.T) {
	g, client := gated(t)
	g.Delay(time.Hour)
	body, err := io.ReadAll(get(t, client, g.url+"/api").Body)
	if err != nil || string(body) != "Bearer me" {
		t.Errorf("a read got %q, %v", body, err)
	}
	answer := get(t, client, g.url+"/api?watch=true")
	heard := make(chan string, 1)
	go func() {
		event := make([]byte, len("event"))
		if _, err := io.ReadFull(answer.Body, event); err != nil {
			event = []byte(err.Error())
		}
		heard <- string(event)
	}()
	// A second read shows that time has passed; the event is an hour away.
	get(t, client, g.url+"/api")
	select {
	case event := <-heard:
		t.Errorf("the watch got %q at once", event)
	default:
	}
	g.Delay(0)
	if event := <-heard; event != "event" {
		t.Errorf("after the delay the watch got %q", event)
	}
}

func TestGateBreaksTheConnectionWhenTheServerIsAway(t *testing.T) {
	g, client := gated(t)
	g.target.Host = "127.0.0.1:1" // nobody listens there
	if answer, err := client.Get(g.url); err == nil {
		t.Errorf("answered %s", answer.Status)
	}
}
