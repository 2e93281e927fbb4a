// Package remote reads a store over HTTP: Handler serves an open store read-only, Open reads
// it from elsewhere. There is no call that writes.
//
// A call is the POST of one JSON object to /v1/<call>. The answer is lines of JSON
// with one field each, the last of which is "end" or "error": an answer that ends
// with another line was cut. Fields may be added to lines; a question with a field
// that the server does not know is refused, because it would be answered wrongly.
package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// Port is the default port on which a store is served. PortName is the name of the container
// port on which a pod serves it.
const (
	Port     = 9446
	PortName = "inspect"
)

// root is where the calls of this version are.
const root = "/v1/"

// Bounds of what is served.
const (
	// MaxQuestion bounds the body of a request, in bytes.
	MaxQuestion = 64 << 10
	// MaxSelectors bounds the selectors of a question, those inside of others included.
	MaxSelectors = 64
	// MaxLag bounds how far a lag is counted, in records.
	MaxLag = 100_000
	// AtOnce bounds the calls that read at the same time; others wait.
	AtOnce = 4
	// CallTimeout bounds a call, its waiting and its answer included.
	CallTimeout = time.Minute
)

// Codes of errors; the other side does not read their texts.
const (
	codeNotFound    = "not-found"
	codeUndecodable = "undecodable"
	codeRefused     = "refused"
	codeFailed      = "failed"
)

// line is one line of an answer.
type line struct {
	Record     *record.Record    `json:"record,omitempty"`
	DeadLetter *store.DeadLetter `json:"deadLetter,omitempty"`
	Consumer   *store.Consumer   `json:"consumer,omitempty"`
	Lag        *store.Lag        `json:"lag,omitempty"`
	End        *end              `json:"end,omitempty"`
	Error      *problem          `json:"error,omitempty"`
}

// end is the last line of a whole answer.
type end struct {
	// More means that more records may follow the page.
	More bool `json:"more,omitempty"`
}

// problem is the last line of an answer that failed.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// question is what a call asks for.
type question interface{ check() error }

// one asks for a record.
type one struct {
	ID string `json:"id"`
}

// letters asks for the dead letters of a source.
type letters struct {
	Source string `json:"source"`
}

// nothing is a request without parameters.
type nothing struct{}

// delay asks for the lag of a consumer.
type delay struct {
	Consumer string          `json:"consumer"`
	Selector record.Selector `json:"selector"`
	Limit    int             `json:"limit"`
}

// query asks for records; it is store.Query.
type query struct {
	Selector record.Selector `json:"selector"`
	Order    string          `json:"order"`
	After    int64           `json:"after,omitempty"`
	Except   []string        `json:"except,omitempty"`
	Limit    int             `json:"limit,omitempty"`
	// Page asks for one page, and whether more may follow.
	Page bool `json:"page,omitempty"`
}

// orders are the names of the orders of a list.
var orders = map[string]store.Order{
	"append": store.ByAppend, "appendDescending": store.ByAppendDescending, "seqDescending": store.BySeqDescending,
}

func (one) check() error     { return nil }
func (letters) check() error { return nil }
func (nothing) check() error { return nil }

func (d delay) check() error {
	if d.Limit < 1 || d.Limit > MaxLag {
		return refused(fmt.Sprintf("the limit %d is not between 1 and %d", d.Limit, MaxLag))
	}
	return few(d.Selector)
}

func (q query) check() error {
	if _, known := orders[q.Order]; !known {
		return refused(fmt.Sprintf("the order %q is unknown", q.Order))
	}
	if q.Limit < 0 {
		return refused(fmt.Sprintf("the limit %d is negative", q.Limit))
	}
	return few(q.Selector)
}

// few refuses selectors that a database would be long busy with.
func few(s record.Selector) error {
	if n := count(s); n > MaxSelectors {
		return refused(fmt.Sprintf("the request has %d selectors, the limit is %d", n, MaxSelectors))
	}
	return nil
}

func count(s record.Selector) int {
	n := 1
	for _, a := range s.Any {
		n += count(a)
	}
	return n
}

// refused is a question that is not answered.
type refused string

// Error returns the reason.
func (r refused) Error() string { return string(r) }

// decode reads a question, which is all that the body holds.
func decode(body io.Reader, q question) error {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	err := dec.Decode(q)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return q.check()
		}
		err = errors.Join(errors.New("unexpected data follows the request"), err)
	}
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return refused(fmt.Sprintf("the request is longer than %d bytes", MaxQuestion))
	}
	return refused(fmt.Sprintf("the request is invalid (%v): the client can be newer than the gateway, use the nvsentinel version of the gateway", err))
}
