package cutproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
)

// echo is a server that answers with what it receives, and notes it.
func echo(t *testing.T) (dial func(context.Context) (net.Conn, error), heard chan string) {
	t.Helper()
	heard = make(chan string, 16)
	return func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			buf := make([]byte, 1024)
			for {
				n, err := theirs.Read(buf)
				if err != nil {
					close(heard)
					return
				}
				heard <- string(buf[:n])
				if _, err := theirs.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
		return ours, nil
	}, heard
}

func connect(t *testing.T, dial func(context.Context) (net.Conn, error)) (*Proxy, net.Conn) {
	t.Helper()
	p, err := Start(dial)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return p, c
}

func send(t *testing.T, c net.Conn, text string) (string, error) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len(text))
	_, err := io.ReadFull(c, buf)
	return string(buf), err
}

func TestPassesEverythingElse(t *testing.T) {
	dial, _ := echo(t)
	p, c := connect(t, dial)
	p.Set("never said", CutBefore)
	if got, err := send(t, c, "hello"); got != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestCut(t *testing.T) {
	for action, reaches := range map[Action]bool{CutBefore: false, CutAfter: true} {
		dial, heard := echo(t)
		p, c := connect(t, dial)
		trap := p.Set("bomb", action)
		if got, err := send(t, c, "a bomb"); err == nil {
			t.Errorf("action %d: answered %q", action, got)
		}
		<-trap.Sprung()
		text, ok := <-heard
		if ok != reaches {
			t.Errorf("action %d: the server heard %q", action, text)
		}
	}
}

func TestHold(t *testing.T) {
	dial, heard := echo(t)
	p, c := connect(t, dial)
	trap := p.Set("wait", Hold)
	if _, err := io.WriteString(c, "wait"); err != nil {
		t.Fatal(err)
	}
	<-trap.Sprung()
	select {
	case text := <-heard:
		t.Errorf("the server heard %q before the release", text)
	default:
	}
	trap.Release()
	if text := <-heard; text != "wait" {
		t.Errorf("the server heard %q", text)
	}
}
