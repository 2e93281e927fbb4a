package gateway_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// raw is a client that sends what no library would send.
type raw struct {
	t    *testing.T
	conn net.Conn
	*http2.Framer
	next uint32
	// pong is closed when the ping is answered, ended when the connection ends.
	pong, ended chan struct{}

	mu sync.Mutex
	// updates are the bytes that the gateway lets each stream send besides the first.
	updates map[uint32]int
}

// dialRaw connects with the given window for answers.
func (h *hall) dialRaw(window uint32) *raw {
	h.t.Helper()
	conn, err := tls.Dial("tcp", h.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		h.t.Fatal(err)
	}
	r := &raw{
		t: h.t, conn: conn, Framer: http2.NewFramer(conn, conn), next: 1,
		pong: make(chan struct{}), ended: make(chan struct{}), updates: map[uint32]int{},
	}
	if err := r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		h.t.Fatal(err)
	}
	go r.listen()
	return r
}

// call begins a call whose request declares so many bytes.
func (r *raw) call(method, token string, size uint32) (stream uint32) {
	r.t.Helper()
	stream, r.next = r.next, r.next+2
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":path", method}, {":authority", "gateway"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", "Bearer " + token},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.WriteData(stream, false, binary.BigEndian.AppendUint32([]byte{0}, size)); err != nil {
		r.t.Fatal(err)
	}
	return stream
}

// listen reads what the gateway sends.
func (r *raw) listen() {
	defer close(r.ended)
	for {
		frame, err := r.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.WindowUpdateFrame:
			r.mu.Lock()
			r.updates[f.StreamID] += int(f.Increment)
			r.mu.Unlock()
		case *http2.PingFrame:
			if f.IsAck() && f.Data == ping {
				close(r.pong)
			}
		}
	}
}

var ping = [8]byte{'h', 'e', 'r', 'e'}

// await waits until everything is read that the gateway has sent until now. It works once:
// gRPC disconnects a client that pings often.
func (r *raw) await() {
	r.t.Helper()
	if err := r.WritePing(false, ping); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.pong:
	case <-r.ended:
		r.t.Fatal("the connection has ended")
	}
}

// let is how many bytes more than the first the gateway lets a stream send.
func (r *raw) let(stream uint32) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.updates[stream]
}
