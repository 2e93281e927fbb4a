package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// in tells whether a file can be the one of the place: whether it begins as that
// did, and has the same before the place.
func (p fileCursor) in(f io.ReaderAt) (bool, error) {
	for _, part := range []struct {
		print print
		at    int64
	}{{p.Print, 0}, {p.Tail, p.TailAt - int64(p.Tail.Length)}} {
		data := make([]byte, part.print.Length)
		n, err := f.ReadAt(data, part.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("comparing the log: %w", err)
		}
		if !part.print.matches(data[:n]) {
			return false, nil
		}
	}
	if p.Offset == 0 {
		return true, nil
	}
	n, err := f.ReadAt(make([]byte, 1), p.Offset-1) // it is long enough
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("comparing the log: %w", err)
	}
	return n == 1, nil
}

// holds tells whether a rotated file can be the one of a place.
func (e entry) holds(position fileCursor) (bool, error) {
	f, err := openLog(e)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // removed since the listing
	}
	if err != nil {
		return false, fmt.Errorf("opening the log: %w", err)
	}
	same, err := position.in(f)
	return same, errors.Join(err, f.Close())
}

// useCopy goes on in a rotated file that has what was read of the file of a place,
// and maybe more: what copytruncate leaves, or a packer.
func (s *File) useCopy(position fileCursor, files []entry) (bool, error) {
	if position.Offset == 0 {
		return false, nil // any file is like it
	}
	for _, e := range files {
		if e.id == position.ID || filepath.Clean(e.path) == filepath.Clean(s.path) {
			continue
		}
		same, err := e.holds(position)
		if err != nil {
			return false, err
		}
		if !same {
			continue
		}
		if err := s.use(e, position.Offset); err != nil {
			return false, err
		}
		s.say("going on in " + e.path + ", to which the log file was moved")
		for i, p := range position.Past {
			if p.ID == position.ID {
				position.Past[i].ID = e.id
			}
		}
		s.cursor.Past = position.Past
		return true, nil
	}
	return false, nil
}

// again goes on after the open file was cut, or its inode was given to another
// one: in the copy that rotation made of it before, else from its start.
func (s *File) again(position fileCursor, current bool) error {
	files, err := family(s.path)
	if err != nil {
		return err
	}
	if current {
		s.truncations.Add(1)
	}
	if found, err := s.useCopy(position, files); err != nil || found {
		return err
	}
	if current {
		s.gap(0, "the log file was cut, and no copy of it is left: what had not been read of it, if anything, is lost")
	} else {
		s.gap(0, "the log file that was read last was overwritten by another one")
	}
	s.rewind(0)
	s.forgetPast(s.cursor.ID)
	return nil
}
