package redact

import (
	"bytes"
	"regexp"
)

// webhooks are begins of URLs that let anyone in who has them; what follows is secret.
var webhooks = []string{
	// https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
	"hooks.slack.com/", "hooks.slack-gov.com/",
	// https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/add-incoming-webhook
	"webhook.office.com/", "outlook.office.com/webhook/",
	// https://discord.com/developers/docs/resources/webhook
	"discord.com/api/webhooks/", "discordapp.com/api/webhooks/",
	"discord.com/api/v10/webhooks/", "discord.com/api/v9/webhooks/", "discord.com/api/v8/webhooks/",
	// https://developer.pagerduty.com/docs/events-api-v1-overview
	"events.pagerduty.com/integration/", "events.eu.pagerduty.com/integration/",
	"alert.victorops.com/integrations/", // https://help.splunk.com/en/splunk-on-call
	"hooks.zapier.com/hooks/",           // https://zapier.com/help
	"maker.ifttt.com/trigger/",          // https://ifttt.com/maker_webhooks
	"api.telegram.org/bot",              // https://core.telegram.org/bots/api#making-requests
	"webexapis.com/v1/webhooks/incoming/", "open.feishu.cn/open-apis/bot/", "open.larksuite.com/open-apis/bot/",
	"hc-ping.com/", // https://healthchecks.io/docs/http_api
}

// parameters of URLs that let anyone in.
var parameters = []string{
	"sig=", "signature=", "x-amz-signature=", "x-amz-credential=", "x-amz-security-token=", "x-goog-signature=",
	"x-goog-credential=", "awsaccesskeyid=",
}

// addresses are rules for URLs and other addresses of servers.
func addresses() []rule {
	begins := []string{"?", "&", ";", `\u0026`, "%26"}
	var signed, keyed []string
	for _, b := range begins {
		for _, p := range parameters {
			signed = append(signed, b+p)
		}
		keyed = append(keyed, b+"key=", b+"code=", b+"auth=")
	}
	return []rule{
		{[]string{"://"}, login},
		{webhooks, behind(`([^\s"'<>]+)`)},
		{signed, behind(`([^\s&"'\\]+)`)},
		{keyed, behind(`([^\s&"'\\]{16,})`)},
		// https_proxy=user:password@host
		{[]string{"proxy"}, behind(`["']?\s*[:=]\s*["']?([^\s:/@"']+:[^\s@"']+)@`)},
		// user:password@tcp(host)/database: https://github.com/go-sql-driver/mysql#dsn-data-source-name
		{[]string{"@tcp(", "@tcp6(", "@unix("}, before},
	}
}

// port is the one of a server, with a path.
var port = regexp.MustCompile(`^\d{1,5}/`)

// login finds user and password of a URL. What has a port and a path has none: an @ in it
// is of an image's digest or of a path.
func login(line, _ []byte, sign span) []span {
	rest := line[sign.to:min(len(line), sign.to+window)]
	goesOn := len(rest) == window
	if end := bytes.IndexAny(rest, " \t\r\""); end >= 0 {
		rest, goesOn = rest[:end], false
	}
	first := bytes.IndexAny(rest, ":/?#@")
	if first < 0 || rest[first] != ':' && (rest[first] != '@' || first == 0) {
		return nil
	}
	at := bytes.LastIndexByte(rest, '@')
	switch {
	case rest[first] == '@':
		return []span{{sign.to, sign.to + first}}
	case port.Match(rest[first+1:]):
		return nil
	case goesOn:
		return []span{{sign.to, len(line)}}
	case at < 0:
		return nil
	}
	return []span{{sign.to, sign.to + at}}
}

// before finds user and password in front of a sign.
func before(line, _ []byte, sign span) []span {
	s := span{sign.from, sign.from}
	for s.from > 0 && sign.from-s.from < window && bytes.IndexByte([]byte(" \t\"'="), line[s.from-1]) < 0 {
		s.from--
	}
	if bytes.IndexByte(line[s.from:s.to], ':') < 0 {
		return nil
	}
	return []span{s}
}
