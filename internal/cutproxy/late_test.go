package cutproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestLateConnections: every answer takes the way there and back, however many
// messages are under way, and none is lost.
func TestLateConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, heard := echo(t)
		c, err := Late(dial, 10*time.Millisecond)(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, text := range []string{"one ", "two ", "three"} {
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
		}
		buf := make([]byte, len("one two three"))
		_, err = io.ReadFull(c, buf)
		if took := time.Since(began); err != nil || string(buf) != "one two three" || took != 20*time.Millisecond {
			t.Errorf("%q after %s, %v", buf, took, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for range heard { // closed when the server saw the end
		}
	})
}

// TestLateConnectionEnds: an end of the server's is one of the client's.
func TestLateConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c, err := Late(func(context.Context) (net.Conn, error) { return ours, nil }, time.Second)(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := theirs.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
}
