package eventexporter_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// behaviour is what the receiver does with a request.
type behaviour struct {
	// status to answer; 0 resets the connection.
	status     int
	retryAfter string
	// take the events, whatever is answered: the answer is lost on the way.
	take bool
	// hang until the client gives up.
	hang bool
}

var takes = behaviour{status: http.StatusAccepted, take: true}

// books is a receiver that keeps books of every event it took.
type books struct {
	t      *testing.T
	server *httptest.Server
	seed   maphash.Seed

	mu sync.Mutex
	// behave decides about a request; its number counts from 1.
	behave   func(n int, r *http.Request, events []event.Event) behaviour
	requests int
	entries  map[string]*entry
	// last is, per node, the number of the newest event whose first delivery was
	// seen.
	last    map[string]uint64
	repeats int
	batches int // requests with more than one event
	wrong   int
}

// entry is one event.
type entry struct {
	sum   uint64
	times int
}

func newBooks(t *testing.T, config *tls.Config) *books {
	b := &books{
		t: t, seed: maphash.MakeSeed(), entries: map[string]*entry{}, last: map[string]uint64{},
		behave: func(int, *http.Request, []event.Event) behaviour { return takes },
	}
	b.server = httptest.NewUnstartedServer(b)
	b.server.TLS = config
	if config != nil {
		b.server.StartTLS()
	} else {
		b.server.Start()
	}
	t.Cleanup(func() { b.server.CloseClientConnections(); b.server.Close() })
	return b
}

// ServeHTTP reads the events with the SDK, as a receiver would.
func (b *books) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the exporter was killed while it sent
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	events, err := read(r)
	if err != nil {
		b.t.Errorf("a request that is no CloudEvent: %v", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch how := b.note(r, events); {
	case how.hang:
		<-r.Context().Done()
	case how.status == 0:
		panic(http.ErrAbortHandler)
	default:
		if how.retryAfter != "" {
			w.Header().Set("Retry-After", how.retryAfter)
		}
		w.WriteHeader(how.status)
		_, _ = io.WriteString(w, "an answer of a test")
	}
}

func read(r *http.Request) ([]event.Event, error) {
	if cehttp.IsHTTPBatch(r.Header) {
		return cehttp.NewEventsFromHTTPRequest(r)
	}
	e, err := cehttp.NewEventFromHTTPRequest(r)
	if err != nil {
		return nil, err
	}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	return []event.Event{*e}, nil
}

// note decides about a request and books what it takes of it.
func (b *books) note(r *http.Request, events []event.Event) behaviour {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests++
	if len(events) > 1 {
		b.batches++
	}
	how := b.behave(b.requests, r, events)
	if how.take {
		for _, e := range events {
			b.take(e)
		}
	}
	return how
}

// take books one event: a repeat has to be the same event, a first delivery to
// be the node's next.
func (b *books) take(e event.Event) {
	body, err := json.Marshal(e)
	if err != nil {
		b.t.Errorf("encoding: %v", err)
	}
	sum := maphash.Bytes(b.seed, body)
	if known := b.entries[e.ID()]; known != nil {
		known.times++
		b.repeats++
		if known.sum != sum {
			b.complain("event %s came again as another one: %s", e.ID(), body)
		}
		return
	}
	b.entries[e.ID()] = &entry{sum: sum, times: 1}
	var data struct {
		HealthEvent struct {
			NodeName string            `json:"nodeName"`
			Metadata map[string]string `json:"metadata"`
		} `json:"healthEvent"`
	}
	if err := e.DataAs(&data); err != nil {
		b.complain("event %s: %v", e.ID(), err)
	}
	node := data.HealthEvent.NodeName
	number, _ := strconv.ParseUint(data.HealthEvent.Metadata[record.MetadataSeq], 10, 64)
	if number <= b.last[node] {
		b.complain("%s: the first delivery of event %d came after that of %d", node, number, b.last[node])
	}
	b.last[node] = number
}

// complain fails the test, but does not fill its log.
func (b *books) complain(format string, args ...any) {
	b.wrong++
	if b.wrong <= 10 {
		b.t.Errorf(format, args...)
	}
}

// does changes the behaviour.
func (b *books) does(behave func(n int, r *http.Request, events []event.Event) behaviour) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behave = behave
}

// always answers with a status.
func (b *books) always(status int) {
	b.does(func(int, *http.Request, []event.Event) behaviour {
		return behaviour{status: status, take: status < 300}
	})
}

// have is how many different events were taken.
func (b *books) have() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries)
}

// tally is how many requests came, and how many events came again.
func (b *books) tally() (requests, repeats int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests, b.repeats
}

// await waits until n different events were taken.
func (b *books) await(n int) {
	b.t.Helper()
	testkit.Until(b.t, patience+time.Duration(n)*2*time.Millisecond, func() bool { return b.have() >= n })
}

// numbered is the n-th event of a node.
func numbered(node string, n int) record.Record {
	b := testkit.Fault(fmt.Sprintf("%s-%07d", node, n)).Node(node).Seq("e", uint64(n)).Code("79").GPU("GPU-1")
	if n%5 == 0 {
		b = b.PersistOnly()
	}
	r := b.Record()
	r.Revision, r.CreatedAt = 0, time.Now().UTC().Truncate(time.Microsecond)
	return r
}
