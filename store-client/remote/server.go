package remote

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Bounds of connections.
const (
	// connections bounds those that are open; others wait to be taken.
	connections = 64
	// sendTimeout bounds the sending of a question.
	sendTimeout = 10 * time.Second
	// leave is how long calls in flight have when the server ends.
	leave = 5 * time.Second
	// flush is how many bytes of an answer are sent at once.
	flush = 64 << 10
)

// Serve answers on the listener until ctx ends, then lets calls in flight finish
// for some seconds. It closes the listener.
func Serve(ctx context.Context, l net.Listener, records store.Reader, log *slog.Logger) error {
	server := http.Server{
		Handler: Handler(records, log), ReadTimeout: sendTimeout, WriteTimeout: sendTimeout + CallTimeout, IdleTimeout: 2 * CallTimeout,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(netutil.LimitListener(l, connections)) }()
	select {
	case err := <-done:
		return fmt.Errorf("serving reads of the store: %w", err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), leave)
	defer cancel()
	if server.Shutdown(bounded) != nil {
		_ = server.Close() // who still reads gets a cut answer, and sees that it is one
	}
	return nil
}

// Handler answers the reads of a store. It authenticates nobody: every client that reaches
// it reads every record. The text of a store's error goes to log and not to the caller.
func Handler(records store.Reader, log *slog.Logger) http.Handler {
	s := &server{records: records, log: log, slots: make(chan struct{}, AtOnce)}
	calls := map[string]http.HandlerFunc{
		"get": answer[one](s, s.get), "list": answer[query](s, s.list), "dead-letters": answer[letters](s, s.letters),
		"consumers": answer[nothing](s, s.consumers), "lag": answer[delay](s, s.lag), "ping": answer[nothing](s, s.ping),
	}
	known := strings.Join(slices.Sorted(maps.Keys(calls)), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := strings.CutPrefix(r.URL.Path, root)
		call, ok := calls[name]
		media := r.Header.Get("Content-Type")
		switch out := newLines(w); {
		case !ok || name == r.URL.Path:
			out.finish(http.StatusNotFound, problem{codeRefused, fmt.Sprintf("unknown path %.100q, known are %s under %s: use the nvsentinel version of the gateway", r.URL.Path, known, root)})
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			out.finish(http.StatusMethodNotAllowed, problem{codeRefused, "requests must use POST, and writes are not supported"})
		case media != "application/json": // what a page in a browser may not send to a stranger
			out.finish(http.StatusUnsupportedMediaType, problem{codeRefused, "requests must have the Content-Type application/json"})
		default:
			call(w, r)
		}
	})
}

// server is what the calls read.
type server struct {
	records store.Reader
	log     *slog.Logger
	// slots holds the calls that read.
	slots chan struct{}
}

// questionPtr is a pointer to a question of one kind.
type questionPtr[Q any] interface {
	*Q
	question
}

// answer serves one call.
func answer[Q any, P questionPtr[Q]](s *server, read func(ctx context.Context, q Q, out *lines) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), CallTimeout)
		defer cancel()
		out := newLines(w)
		var q Q
		err := decode(http.MaxBytesReader(w, r.Body, MaxQuestion), P(&q))
		if err == nil {
			err = s.inTurn(ctx, func() error { return read(ctx, q, out) })
		}
		if err != nil {
			status, p := s.problem(r, err)
			out.finish(status, p)
			return
		}
		out.end()
	}
}

// inTurn reads when a slot is free.
func (s *server) inTurn(ctx context.Context, read func() error) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		return read()
	case <-ctx.Done():
		return fmt.Errorf("waiting for %d other reads: %w", AtOnce, ctx.Err())
	}
}

// problem is how an error is reported to the caller: a store's own text stays here, because
// its content is unknown.
func (s *server) problem(r *http.Request, err error) (int, problem) {
	if why, ok := errors.AsType[refused](err); ok {
		return http.StatusBadRequest, problem{codeRefused, why.Error()}
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return http.StatusNotFound, problem{codeNotFound, store.ErrNotFound.Error()}
	case errors.Is(err, store.ErrUndecodable):
		return http.StatusUnprocessableEntity, problem{codeUndecodable, store.ErrUndecodable.Error()}
	case r.Context().Err() != nil: // nobody listens
		return http.StatusServiceUnavailable, problem{codeFailed, "the caller has disconnected"}
	}
	s.log.Warn("store read failed", "call", r.URL.Path, "error", err)
	if errors.Is(err, context.DeadlineExceeded) {
		return http.StatusGatewayTimeout, problem{codeFailed, "the store did not respond in time, see the log of the gateway"}
	}
	return http.StatusBadGateway, problem{codeFailed, "the store could not be read, see the log of the gateway"}
}

func (s *server) get(ctx context.Context, q one, out *lines) error {
	r, err := s.records.Get(ctx, q.ID)
	if err != nil {
		return err
	}
	return out.write(line{Record: &r})
}

// list reads page by page, whatever is asked for, so that one page is in memory.
func (s *server) list(ctx context.Context, q query, out *lines) error {
	pages := store.Query{
		Selector: q.Selector, Order: orders[q.Order], After: q.After, Except: q.Except,
		Limit: min(cmp.Or(q.Limit, store.PageRecords), store.PageRecords),
	}
	if q.Page || pages.Order == store.BySeqDescending {
		return s.page(ctx, q, pages, out)
	}
	left := q.Limit
	return store.Each(ctx, s.records, pages, func(r record.Record) error {
		if err := out.write(line{Record: &r}); err != nil {
			return err
		}
		if left--; left == 0 {
			return store.Enough
		}
		return nil
	})
}

// page reads one page. A list by the publisher's counter has no second one.
func (s *server) page(ctx context.Context, q query, pages store.Query, out *lines) error {
	pages.More = &out.more
	page, err := s.records.List(ctx, pages)
	if err != nil {
		return err
	}
	if out.more && !q.Page && (q.Limit == 0 || len(page) < q.Limit) {
		return refused(fmt.Sprintf("a list by the publisher's counter is limited to %d records and %d bytes, request fewer records", store.PageRecords, store.PageBytes))
	}
	for i := range page {
		if err := out.write(line{Record: &page[i]}); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) letters(ctx context.Context, q letters, out *lines) error {
	list, err := s.records.DeadLetters(ctx, q.Source)
	for i := range list {
		if err == nil {
			err = out.write(line{DeadLetter: &list[i]})
		}
	}
	return err
}

func (s *server) consumers(ctx context.Context, _ nothing, out *lines) error {
	list, err := s.records.Consumers(ctx)
	for i := range list {
		if err == nil {
			err = out.write(line{Consumer: &list[i]})
		}
	}
	return err
}

func (s *server) lag(ctx context.Context, q delay, out *lines) error {
	lag, err := s.records.Lag(ctx, q.Consumer, q.Selector, q.Limit)
	if err != nil {
		return err
	}
	return out.write(line{Lag: &lag})
}

func (s *server) ping(ctx context.Context, _ nothing, _ *lines) error { return s.records.Ping(ctx) }

// lines is an answer in the making.
type lines struct {
	w     http.ResponseWriter
	text  *bufio.Writer
	enc   *json.Encoder
	begun bool
	more  bool
}

func newLines(w http.ResponseWriter) *lines {
	text := bufio.NewWriterSize(w, flush)
	return &lines{w: w, text: text, enc: json.NewEncoder(text)}
}

// write adds a line.
func (l *lines) write(x line) error {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	if err := l.enc.Encode(x); err != nil {
		return fmt.Errorf("writing the response: %w", err)
	}
	return nil
}

// end writes that the answer is whole.
func (l *lines) end() { l.last(line{End: &end{More: l.more}}) }

// finish writes why the answer is not whole; the status counts while nothing was written.
func (l *lines) finish(status int, p problem) {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.WriteHeader(status)
	}
	l.last(line{Error: &p})
}

// last writes the last line and sends it to the caller.
func (l *lines) last(x line) {
	if l.write(x) == nil {
		_ = l.text.Flush()
	}
}
