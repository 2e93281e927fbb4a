package report

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
)

// DeadLetters returns the dead letters, oldest first; no product reads them.
func (o *Outbox) DeadLetters() ([]DeadLetter, error) {
	var out []DeadLetter
	err := o.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketDead).ForEach(func(_, v []byte) error {
			var l DeadLetter
			if err := json.Unmarshal(v, &l); err != nil {
				return fmt.Errorf("decoding a dead letter: %w", err)
			}
			out = append(out, l)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("reading the dead letters: %w", err)
	}
	return out, nil
}
