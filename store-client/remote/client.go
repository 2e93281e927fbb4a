package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Dial connects to where a Handler is served.
type Dial func(ctx context.Context) (net.Conn, error)

// Open reads the store that is served behind dial, which is called by the first read
// and whenever no connection is left. Errors of dial are those of the reads.
func Open(dial Dial) store.Reader {
	return &reader{&http.Client{Transport: &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxConnsPerHost: AtOnce, MaxIdleConnsPerHost: AtOnce,
	}}}
}

// reader implements store.Reader.
type reader struct{ http *http.Client }

// Get implements store.Reader.
func (r *reader) Get(ctx context.Context, id string) (out record.Record, err error) {
	_, err = r.query(ctx, "get", one{id}, func(l line) {
		if l.Record != nil {
			out = *l.Record
		}
	})
	if err == nil && out.ID != id {
		err = fmt.Errorf("the response contains record %q", out.ID)
	}
	if err != nil {
		return record.Record{}, fmt.Errorf("reading record %s: %w", id, err)
	}
	return out, nil
}

// List implements store.Reader. Without a limit it lists all that is stored while it
// reads, page by page.
func (r *reader) List(ctx context.Context, q store.Query) (out []record.Record, err error) {
	asked := query{Selector: q.Selector, After: q.After, Except: q.Except, Limit: q.Limit, Page: q.More != nil}
	for name, order := range orders {
		if order == q.Order {
			asked.Order = name
		}
	}
	last, err := r.query(ctx, "list", asked, func(l line) {
		if l.Record != nil {
			out = append(out, *l.Record)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing records: %w", err)
	}
	if q.More != nil {
		*q.More = last.More
	}
	return out, nil
}

// DeadLetters implements store.Reader.
func (r *reader) DeadLetters(ctx context.Context, source string) (out []store.DeadLetter, err error) {
	_, err = r.query(ctx, "dead-letters", letters{source}, func(l line) {
		if l.DeadLetter != nil {
			out = append(out, *l.DeadLetter)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("reading the dead letters of %s: %w", source, err)
	}
	return out, nil
}

// Consumers implements store.Reader.
func (r *reader) Consumers(ctx context.Context) (out []store.Consumer, err error) {
	_, err = r.query(ctx, "consumers", nothing{}, func(l line) {
		if l.Consumer != nil {
			out = append(out, *l.Consumer)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing consumers: %w", err)
	}
	return out, nil
}

// Lag implements store.Reader.
func (r *reader) Lag(ctx context.Context, consumer string, selector record.Selector, limit int) (out store.Lag, err error) {
	_, err = r.query(ctx, "lag", delay{consumer, selector, limit}, func(l line) {
		if l.Lag != nil {
			out = *l.Lag
		}
	})
	if err != nil {
		return store.Lag{}, fmt.Errorf("reading the lag of %s: %w", consumer, err)
	}
	return out, nil
}

// Ping implements store.Reader.
func (r *reader) Ping(ctx context.Context) error {
	if _, err := r.query(ctx, "ping", nothing{}, func(line) {}); err != nil {
		return fmt.Errorf("connecting to the store: %w", err)
	}
	return nil
}

// Close implements store.Reader.
func (r *reader) Close() error {
	r.http.CloseIdleConnections()
	return nil
}

// query asks a question and gives the lines of a whole answer to take.
func (r *reader) query(ctx context.Context, call string, q question, take func(line)) (end, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return end{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://store"+root+call, bytes.NewReader(text))
	if err != nil {
		return end{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["X-Idempotency-Key"] = nil // not sent: it has net/http ask again when a kept connection turns out to be dead
	answer, err := r.http.Do(req)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // its address is one that nobody knows
		}
		return end{}, err
	}
	defer answer.Body.Close()
	for dec := json.NewDecoder(answer.Body); ; {
		var l line
		if err := dec.Decode(&l); err != nil {
			return end{}, fmt.Errorf("the response (HTTP %d) is truncated, or the gateway has another version: %w", answer.StatusCode, err)
		}
		switch {
		case l.Error != nil:
			return end{}, l.Error.err()
		case l.End != nil:
			return *l.End, nil
		}
		take(l)
	}
}

// err is the error of the store, with its kind where that is known.
func (p problem) err() error {
	switch p.Code {
	case codeNotFound:
		return store.ErrNotFound
	case codeUndecodable:
		return store.ErrUndecodable
	}
	return errors.New(p.Message)
}
