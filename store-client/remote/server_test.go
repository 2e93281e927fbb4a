package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// fakeReader is a store whose answers the test defines.
type fakeReader struct {
	store.Reader
	list  func(ctx context.Context, q store.Query) ([]record.Record, error)
	ping  func(ctx context.Context) error
	limit int
}

func (f *fakeReader) List(ctx context.Context, q store.Query) ([]record.Record, error) {
	f.limit = max(f.limit, q.Limit)
	return f.list(ctx, q)
}
func (f *fakeReader) Ping(ctx context.Context) error { return f.ping(ctx) }
func (f *fakeReader) Get(context.Context, string) (record.Record, error) {
	return record.Record{}, fmt.Errorf("id: %w", store.ErrUndecodable)
}

func (f *fakeReader) Lag(context.Context, string, record.Selector, int) (store.Lag, error) {
	return store.Lag{Pending: 2, Oldest: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Lost: "gone"}, nil
}

func (f *fakeReader) Consumers(context.Context) ([]store.Consumer, error) {
	return []store.Consumer{{Name: "c"}, {Name: "d"}}, nil
}

func (f *fakeReader) DeadLetters(_ context.Context, source string) ([]store.DeadLetter, error) {
	return []store.DeadLetter{{ID: "i", Source: source, Body: []byte("b")}}, nil
}

func request(t *testing.T, h http.Handler, r *http.Request) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func post(path, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// discardLogger is a log that nobody reads.
func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestWire: what goes over the wire is what versions of both sides agree on; a change
// here is another version.
func TestWire(t *testing.T) {
	s := &fakeReader{
		list: func(_ context.Context, q store.Query) ([]record.Record, error) {
			*q.More = true
			return []record.Record{{ID: "r"}}, nil
		},
		ping: func(context.Context) error { return nil },
	}
	text, err := json.Marshal(record.Record{ID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	const ended = `{"end":{}}` + "\n"
	for name, tt := range map[string]struct{ path, body, want string }{
		"ping":         {"/v1/ping", `{}`, ended},
		"get":          {"/v1/get", `{"id":"r"}`, `{"error":{"code":"undecodable","message":"the stored document cannot be decoded"}}` + "\n"},
		"list":         {"/v1/list", `{"selector":{"Node":"n","Open":true},"order":"append","after":1,"except":["x"],"limit":1,"page":true}`, `{"record":` + string(text) + `}` + "\n" + `{"end":{"more":true}}` + "\n"},
		"lag":          {"/v1/lag", `{"consumer":"c","selector":{},"limit":1}`, `{"lag":{"Pending":2,"Oldest":"2026-01-02T03:04:05Z","Lost":"gone"}}` + "\n" + ended},
		"dead letters": {"/v1/dead-letters", `{"source":"s"}`, `{"deadLetter":{"ID":"i","Source":"s","Reason":"","Body":"Yg==","At":"0001-01-01T00:00:00Z"}}` + "\n" + ended},
		"consumers":    {"/v1/consumers", `{}`, `{"consumer":{"Name":"c","Mark":"0001-01-01T00:00:00Z","CommittedAt":"0001-01-01T00:00:00Z"}}` + "\n" + `{"consumer":{"Name":"d","Mark":"0001-01-01T00:00:00Z","CommittedAt":"0001-01-01T00:00:00Z"}}` + "\n" + ended},
	} {
		if _, got := request(t, Handler(s, discardLogger()), post(tt.path, tt.body)); got != tt.want {
			t.Errorf("%s answers\n%s, want\n%s", name, got, tt.want)
		}
	}
}

// TestRefused: a request that is not understood is refused with the reason.
func TestRefused(t *testing.T) {
	nested := strings.Repeat(`{"Any":[`, 80) + `{}` + strings.Repeat(`]}`, 80)
	put := post("/v1/ping", "{}")
	put.Method = http.MethodPut
	form := post("/v1/ping", "{}")
	form.Header.Set("Content-Type", "text/plain")
	for name, tt := range map[string]struct {
		r       *http.Request
		status  int
		message string
	}{
		"a later version":      {post("/v2/list", "{}"), 404, "unknown path"},
		"another call":         {post("/v1/append", "{}"), 404, "consumers, dead-letters, get, lag, list, ping under /v1/"},
		"no version":           {post("/list", "{}"), 404, "unknown path"},
		"a write":              {put, 405, "writes are not supported"},
		"a page in a browser":  {form, 415, "application/json"},
		"a newer question":     {post("/v1/get", `{"id":"a","why":"b"}`), 400, `unknown field \"why\"`},
		"a newer selector":     {post("/v1/list", `{"order":"append","selector":{"Rack":"7"}}`), 400, `unknown field \"Rack\"`},
		"a newer order":        {post("/v1/list", `{"order":"shuffled"}`), 400, "the order"},
		"no JSON":              {post("/v1/get", `id=a`), 400, "the request is invalid"},
		"nothing":              {post("/v1/get", ``), 400, "the request is invalid"},
		"two questions":        {post("/v1/get", `{"id":"a"}{"id":"b"}`), 400, "unexpected data follows"},
		"too long":             {post("/v1/get", `{"id":"`+strings.Repeat("a", MaxQuestion)+`"}`), 400, "longer than 65536 bytes"},
		"too many selectors":   {post("/v1/list", `{"order":"append","selector":`+nested+`}`), 400, "81 selectors, the limit is 64"},
		"a negative limit":     {post("/v1/list", `{"order":"append","limit":-1}`), 400, "negative"},
		"a lag without end":    {post("/v1/lag", `{"consumer":"c","limit":100001}`), 400, "between 1 and 100000"},
		"a lag of nothing":     {post("/v1/lag", `{"consumer":"c"}`), 400, "between 1 and 100000"},
		"a record not decoded": {post("/v1/get", `{"id":"a"}`), 422, `"code":"undecodable"`},
	} {
		if status, body := request(t, Handler(&fakeReader{}, discardLogger()), tt.r); status != tt.status || !strings.Contains(body, tt.message) {
			t.Errorf("%s: %d %s, want %d with %q", name, status, body, tt.status, tt.message)
		}
	}
}

// TestErrorsStay: the text of a store's error, such as an address with a password, is for
// the log of the server alone.
func TestErrorsStay(t *testing.T) {
	secret := errors.New("connecting to postgres://u:hunter2@db/records: refused")
	var log bytes.Buffer
	half := func(_ context.Context, q store.Query) ([]record.Record, error) {
		if q.After > 0 {
			return nil, secret
		}
		*q.More = true
		return []record.Record{{ID: "first", Append: 1}}, nil
	}
	h := Handler(&fakeReader{ping: func(context.Context) error { return secret }, list: half}, slog.New(slog.NewTextHandler(&log, nil)))
	for path, body := range map[string]string{"/v1/ping": `{}`, "/v1/list": `{"order":"append"}`} {
		_, got := request(t, h, post(path, body))
		if strings.Contains(got, "hunter2") || !strings.HasSuffix(got, `{"error":{"code":"failed","message":"the store could not be read, see the log of the gateway"}}`+"\n") {
			t.Errorf("%s: %s", path, got)
		}
	}
	if n := strings.Count(log.String(), "hunter2"); n != 2 {
		t.Errorf("the log has the reason %d times, want 2:\n%s", n, log.String())
	}
}

// TestPages: whatever is asked for, the store is asked for one page after the other.
func TestPages(t *testing.T) {
	const stored = 3*store.PageRecords + 1
	for name, tt := range map[string]struct {
		body    string
		want    int
		message string
	}{
		"everything":           {`{"order":"append"}`, stored, `{"end":{}}`},
		"some":                 {`{"order":"append","limit":700}`, 700, `{"end":{}}`},
		"few":                  {`{"order":"append","limit":3}`, 3, `{"end":{}}`},
		"a page of everything": {`{"order":"append","page":true}`, store.PageRecords, `{"end":{"more":true}}`},
		"few by counter":       {`{"order":"seqDescending","limit":3}`, 3, `{"end":{"more":true}}`},
		"many by counter":      {`{"order":"seqDescending","limit":501}`, 0, "request fewer records"},
		"all by counter":       {`{"order":"seqDescending"}`, 0, "request fewer records"},
	} {
		s := &fakeReader{list: func(_ context.Context, q store.Query) (out []record.Record, _ error) {
			for at := q.After + 1; at <= stored && len(out) < q.Limit; at++ {
				out = append(out, record.Record{ID: "r", Append: at})
			}
			*q.More = q.After+int64(len(out)) < stored
			return out, nil
		}}
		_, got := request(t, Handler(s, discardLogger()), post("/v1/list", tt.body))
		if n := strings.Count(got, `{"record"`); n != tt.want || !strings.Contains(got, tt.message) || s.limit > store.PageRecords {
			t.Errorf("%s: %d records, want %d; %d asked for at once; ends %s", name, n, tt.want, s.limit, got[max(0, len(got)-200):])
		}
	}
}

// TestFewAtOnce: further calls wait, and not for ever.
func TestFewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int32
		h := Handler(&fakeReader{ping: func(ctx context.Context) error {
			inside.Add(1)
			<-ctx.Done() // a store that does not answer
			return ctx.Err()
		}}, discardLogger())
		answers := make(chan string)
		began := time.Now()
		for range AtOnce + 3 {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, post("/v1/ping", "{}"))
				answers <- w.Body.String()
			}()
		}
		synctest.Wait()
		if n := inside.Load(); n != AtOnce {
			t.Errorf("%d calls read at once, want %d", n, AtOnce)
		}
		for range AtOnce + 3 {
			if got := <-answers; !strings.Contains(got, "did not respond in time") {
				t.Errorf("answer %s", got)
			}
		}
		if took := time.Since(began); took != CallTimeout {
			t.Errorf("the last was answered after %s, want %s", took, CallTimeout)
		}
	})
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes() pipes {
	closed := make(chan struct{})
	return pipes{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

// dial is the way to it.
func (p pipes) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { p.close(); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestFewConnections: one more is taken when another one has ended.
func TestFewConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- Serve(ctx, l, &fakeReader{ping: func(context.Context) error { return nil }}, discardLogger())
		}()
		var open []net.Conn
		for range connections {
			c, err := l.dial(ctx)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		r := Open(l.dial)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Ping(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over connection %d: %v", connections+1, err)
		}
		_ = open[0].Close()
		if err := r.Ping(t.Context()); err != nil {
			t.Errorf("after one has ended: %v", err)
		}
		for _, c := range open {
			_ = c.Close()
		}
		_ = r.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestCutAnswers: half an answer, and one of another program, are no answers.
func TestCutAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		status        int
		body, message string
	}{
		"cut between lines": {200, `{"record":{"id":"r"}}` + "\n", "is truncated"},
		"cut in a line":     {200, `{"record":{"id"`, "is truncated"},
		"another program":   {404, "404 page not found\n", "the gateway has another version"},
		"a later code":      {503, `{"error":{"code":"tired","message":"come back tomorrow"}}`, "come back tomorrow"},
		"a later line":      {200, `{"weather":"fine"}` + "\n" + `{"end":{"hours":3}}`, ""},
		"a later record":    {200, `{"record":{"id":7}}` + "\n" + `{"end":{}}`, "the gateway has another version"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		}))
		r := Open(func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
		})
		_, err := r.List(t.Context(), store.Query{})
		if (err == nil) != (tt.message == "") || err != nil && !strings.Contains(err.Error(), tt.message) {
			t.Errorf("%s: %v, want %q", name, err, tt.message)
		}
		_ = r.Close()
		s.Close()
	}
}

// FuzzDecode: whatever is sent, it is a question within the bounds or refused.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"order":"append"}`, `{"order":"seqDescending","limit":1,"except":["a"]}`, `{"selector":{"Any":[{"Node":"n"}]},"order":"append"}`, `{}`, `[`, `{"order":"append"} `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var q query
		err := decode(bytes.NewReader(body), &q)
		if _, ok := errors.AsType[refused](err); err != nil && !ok {
			t.Fatalf("%T: %v", err, err)
		}
		if err != nil {
			return
		}
		if _, ok := orders[q.Order]; !ok || q.Limit < 0 || count(q.Selector) > MaxSelectors {
			t.Errorf("accepted %+v", q)
		}
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		var again query
		if err := decode(bytes.NewReader(text), &again); err != nil {
			t.Errorf("what was accepted is refused when it is sent again: %v", err)
		}
	})
}
