// Package worker keeps the calls of DCGM's library in a process of their own. A
// call cannot be cancelled, the library has one connection per process, and it can
// end its process: so the process is killed and replaced when a call does not come
// back or fails, and the monitor goes on.
//
// The parent writes requests to the child's standard input and reads what it
// answers from a pipe, both as lines of JSON. The child reports each call as it
// begins and ends, so that the parent knows which one hangs. It exits when its
// standard input ends: a child outlives no parent.
package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
)

// Target is where DCGM is.
type Target struct {
	// Address is host:port, or unix:// and a path.
	Address string `json:"address,omitempty"`
	// Embedded runs the host engine within the child.
	Embedded bool `json:"embedded,omitempty"`
}

// Steps reports calls as they begin and end.
type Steps interface {
	// Do runs a call; its error is that of the call.
	Do(name string, call func() error) error
}

// Library is DCGM's, with one connection.
type Library interface {
	// Connect connects and begins to watch.
	Connect(target Target, steps Steps) error
	// Poll takes one look, with the XIDs since a time. A look with a call that
	// failed is none.
	Poll(since time.Time) (reading.Reading, error)
}

// request is what the child is asked: a connection where Target is set, else a look.
type request struct {
	Target *Target `json:"target,omitempty"`
	// Since is in µs since 1970.
	Since int64 `json:"since,omitempty"`
}

// message is what the child reports: that a call began or ended, or the answer.
type message struct {
	Began   string           `json:"began,omitempty"`
	Ended   string           `json:"ended,omitempty"`
	Seconds float64          `json:"seconds,omitempty"`
	Answer  bool             `json:"answer,omitempty"`
	Reading *reading.Reading `json:"reading,omitempty"`
	// Operation is the call that failed, Error its error.
	Operation string `json:"operation,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Answers is the number of the file on which a child answers: not its standard
// output, to which libraries write.
const Answers = 3

// Serve is the child: it answers requests until in ends, and then calls exit, also
// while a call does not come back.
func Serve(in io.Reader, out io.Writer, lib Library, exit func()) {
	s := &server{out: json.NewEncoder(out), exit: exit}
	requests := make(chan request)
	go func() {
		decoder := json.NewDecoder(in)
		for {
			var r request
			if err := decoder.Decode(&r); err != nil {
				exit()
				close(requests)
				return
			}
			requests <- r
		}
	}()
	for r := range requests {
		s.answer(lib, r)
	}
}

// server runs calls in the child and reports them to the parent.
type server struct {
	out  *json.Encoder
	exit func()
	at   string // the call that was begun last
}

func (s *server) send(m message) {
	if err := s.out.Encode(m); err != nil {
		s.exit() // nobody listens
	}
}

// Do runs a call and reports its begin and end.
func (s *server) Do(name string, call func() error) error {
	s.at = name
	s.send(message{Began: name})
	began := time.Now() //nolint:forbidigo // what is measured is the real time of a foreign call
	err := call()
	s.send(message{Ended: name, Seconds: time.Since(began).Seconds()}) //nolint:forbidigo // see above
	return err
}

func (s *server) answer(lib Library, r request) {
	m := message{Answer: true}
	var err error
	if r.Target != nil {
		err = lib.Connect(*r.Target, s)
	} else {
		var look reading.Reading
		if look, err = lib.Poll(time.UnixMicro(r.Since)); err == nil {
			m.Reading = &look
		}
	}
	if err != nil {
		m.Operation, m.Error = s.at, fmt.Sprint(err)
	}
	s.send(m)
}
