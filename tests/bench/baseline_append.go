package bench

import (
	"os"
	"time"
)

// appendBaseline is the least that making events durable costs: publishers hand
// payloads to one writer, which appends whatever waits in one write and one
// fsync, then answers them all. It returns each payload's wait, and the whole.
func appendBaseline(path string, payload []byte, publishers, n int) ([]time.Duration, time.Duration, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	requests := make(chan chan error, publishers)
	go func() {
		for first := range requests {
			group, data := []chan error{first}, append([]byte(nil), payload...)
			for waiting := true; waiting; {
				select {
				case r, open := <-requests:
					if waiting = open; open {
						group, data = append(group, r), append(data, payload...)
					}
				default:
					waiting = false
				}
			}
			_, err := file.Write(data)
			if err == nil {
				err = file.Sync()
			}
			for _, r := range group {
				r <- err
			}
		}
	}()
	waits := make([]time.Duration, n)
	began := time.Now()
	err = atOnce(n, publishers, func(i int) error {
		began, done := time.Now(), make(chan error, 1)
		requests <- done
		err := <-done
		waits[i] = time.Since(began)
		return err
	})
	whole := time.Since(began)
	close(requests)
	return waits, whole, err
}
