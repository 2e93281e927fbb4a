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

// eventReceiver is a receiver that keeps records of every event it took.
type eventReceiver struct {
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
	last       map[string]uint64
	repeats    int
	batches    int // requests with more than one event
	mismatches int
}

// entry is one event.
type entry struct {
	sum   uint64
	times int
}

func newEventReceiver(t *testing.T, config *tls.Config) *eventReceiver {
	b := &eventReceiver{
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
func (er *eventReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the exporter was killed while it sent
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	events, err := read(r)
	if err != nil {
		er.t.Errorf("a request that is no CloudEvent: %v", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch how := er.note(r, events); {
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

// note decides about a request and records what it takes of it.
func (er *eventReceiver) note(r *http.Request, events []event.Event) behaviour {
	er.mu.Lock()
	defer er.mu.Unlock()
	er.requests++
	if len(events) > 1 {
		er.batches++
	}
	how := er.behave(er.requests, r, events)
	if how.take {
		for _, e := range events {
			er.take(e)
		}
	}
	return how
}

// take records one event: a repeat has to be the same event, a first delivery to
// be the node's next.
func (er *eventReceiver) take(e event.Event) {
	body, err := json.Marshal(e)
	if err != nil {
		er.t.Errorf("encoding: %v", err)
	}
	sum := maphash.Bytes(er.seed, body)
	if known := er.entries[e.ID()]; known != nil {
		known.times++
		er.repeats++
		if known.sum != sum {
			er.complain("event %s came again as another one: %s", e.ID(), body)
		}
		return
	}
	er.entries[e.ID()] = &entry{sum: sum, times: 1}
	var data struct {
		HealthEvent struct {
			NodeName string            `json:"nodeName"`
			Metadata map[string]string `json:"metadata"`
		} `json:"healthEvent"`
	}
	if err := e.DataAs(&data); err != nil {
		er.complain("event %s: %v", e.ID(), err)
	}
	node := data.HealthEvent.NodeName
	number, _ := strconv.ParseUint(data.HealthEvent.Metadata[record.MetadataSeq], 10, 64)
	if number <= er.last[node] {
		er.complain("%s: the first delivery of event %d came after that of %d", node, number, er.last[node])
	}
	er.last[node] = number
}

// complain fails the test, but does not fill its log.
func (er *eventReceiver) complain(format string, args ...any) {
	er.mismatches++
	if er.mismatches <= 10 {
		er.t.Errorf(format, args...)
	}
}

// does changes the behaviour.
func (er *eventReceiver) does(behave func(n int, r *http.Request, events []event.Event) behaviour) {
	er.mu.Lock()
	defer er.mu.Unlock()
	er.behave = behave
}

// always answers with a status.
func (er *eventReceiver) always(status int) {
	er.does(func(int, *http.Request, []event.Event) behaviour {
		return behaviour{status: status, take: status < 300}
	})
}

// have is how many different events were taken.
func (er *eventReceiver) have() int {
	er.mu.Lock()
	defer er.mu.Unlock()
	return len(er.entries)
}

// tally is how many requests came, and how many events came again.
func (er *eventReceiver) tally() (requests, repeats int) {
	er.mu.Lock()
	defer er.mu.Unlock()
	return er.requests, er.repeats
}

// await waits until n different events were taken.
func (er *eventReceiver) await(n int) {
	er.t.Helper()
	testkit.Until(er.t, waitTimeout+time.Duration(n)*2*time.Millisecond, func() bool { return er.have() >= n })
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
