package cutproxy

import (
	"bytes"
	"context"
	"net"
	"time"

	"k8s.io/utils/clock"
)

// Late has every message on the connections that dial makes arrive so much later,
// in either direction: a round trip takes twice as long. What is under way at the
// same time is not bounded, as on a long line of great width.
func Late(dial func(ctx context.Context) (net.Conn, error), oneWay time.Duration) func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		far, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		near, inner := net.Pipe()
		go carry(far, inner, oneWay)
		go carry(inner, far, oneWay)
		return near, nil
	}
}

// parcel is a message and when it arrives.
type parcel struct {
	bytes []byte
	due   <-chan time.Time
}

// carry takes what is read from one end to the other until either is closed, and
// then closes both: what is under way by then still arrives.
func carry(to, from net.Conn, late time.Duration) {
	parcels := make(chan parcel, 1<<14)
	go func() {
		defer close(parcels)
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				parcels <- parcel{bytes.Clone(buf[:n]), clock.RealClock{}.After(late)}
			}
			if err != nil {
				return
			}
		}
	}()
	broken := false
	for p := range parcels {
		<-p.due
		if broken {
			continue
		}
		if _, err := to.Write(p.bytes); err != nil {
			broken = true
			_ = from.Close() // its reader ends
		}
	}
	_ = to.Close()
	_ = from.Close()
}
