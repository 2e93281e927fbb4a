package redact

import "bytes"

// The lines around a private key: of PEM (RFC 7468), of SSH2 (RFC 4716), of PuTTY.
var (
	keyBegins = [][]byte{[]byte("-----BEGIN "), []byte("---- BEGIN ")}
	keyEnds   = [][]byte{[]byte("-----END "), []byte("---- END ")}
	keyNamed  = []byte("PRIVATE KEY")
	keyLines  = []byte("Private-Lines:")
	keyMAC    = []byte("Private-MAC:")
)

// keys are private keys that begin in a line, up to their end or that of the line. Of
// one in several lines a Writer masks the others.
func keys() []rule {
	return []rule{
		{[]string{"-----begin ", "---- begin "}, func(line, _ []byte, sign span) []span {
			if !bytes.Contains(line[sign.to:min(len(line), sign.to+64)], keyNamed) {
				return nil
			}
			return []span{{sign.from, keyEnd(line, sign.to)}}
		}},
		{[]string{"private-lines:"}, toTextEnd},
	}
}

// keyEnd is behind the dashes of the next end of a key, or the end of the line.
func keyEnd(line []byte, at int) int {
	end, _ := firstOf(line[at:], keyEnds)
	if end < 0 {
		return len(line)
	}
	at += end + len("---- END ")
	dashes := bytes.Index(line[at:], []byte("----"))
	if dashes < 0 {
		return len(line)
	}
	at += dashes
	for at < len(line) && line[at] == '-' {
		at++
	}
	return at
}

func firstOf(line []byte, texts [][]byte) (at, length int) {
	at = -1
	for _, t := range texts {
		if i := bytes.Index(line, t); i >= 0 && (at < 0 || i < at) {
			at, length = i, len(t)
		}
	}
	return at, length
}

func lastOf(line []byte, texts [][]byte) int {
	at := -1
	for _, t := range texts {
		at = max(at, bytes.LastIndex(line, t))
	}
	return at
}

// opensKey says whether a private key begins in a line and does not end there.
func opensKey(line []byte) bool {
	if _, behind, ok := bytes.Cut(line, keyLines); ok {
		return !bytes.Contains(behind, keyMAC)
	}
	if !bytes.Contains(line, keyNamed) {
		return false
	}
	at := lastOf(line, keyBegins)
	return at >= 0 && bytes.Contains(line[at:], keyNamed) && lastOf(line[at:], keyEnds) < 0
}

// closesKey says whether the last thing that a line says of private keys is an end.
func closesKey(line []byte) bool {
	return bytes.Contains(line, keyMAC) || lastOf(line, keyEnds) > lastOf(line, keyBegins)
}
