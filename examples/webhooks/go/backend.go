// An application beside Encke in Go: names users, protects channels, changes messages and answers a service.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)
type object = map[string]any
// isSigned is true if Encke signed this body at most five minutes ago.
func isSigned(key []byte, header http.Header, body []byte) bool {
	sent, _ := time.ParseDuration(header.Get("webhook-timestamp") + "s")
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", header.Get("webhook-id"), header.Get("webhook-timestamp"), body)
	expected := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	matches := func(given string) bool { return hmac.Equal([]byte(given), expected) }
	isSigned := slices.ContainsFunc(strings.Fields(header.Get("webhook-signature")), matches)
	return isSigned && time.Since(time.Unix(0, 0).Add(sent)).Abs() < 5*time.Minute
}

func answer(kind string, data object) object {
	user, channel := fmt.Sprint(data["user"]), fmt.Sprint(data["channel"])
	switch content, _ := data["data"].(object); kind {
	case "handshake": // The client sends its name in `ext`. A real application checks a password or a cookie here.
		ext, _ := data["ext"].(object)
		name, _ := ext["name"].(string)
		return object{"allow": name != "" && !strings.ContainsAny(name, "/*"), "user": name, "code": 401, "reason": "name_required"}
	case "subscribe": // Everyone may read /public/…, and each user one private channel.
		return object{"allow": strings.HasPrefix(channel, "/public/") || channel == "/private/"+user, "reason": "not_yours"}
	case "publish": // Adds the publisher to each message.
		return object{"allow": true, "data": object{"text": content["text"], "by": user}}
	case "service": // Answers the caller, and publishes to everyone.
		greeted := object{"channel": "/public/greeted", "data": object{"user": user}}
		return object{"reply": object{"hello": user}, "actions": []object{{"publish": greeted}}}
	}
	fmt.Println(kind, data["session"], user, data["reason"])
	return object{}
}

func main() {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"))
	http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		var event object
		body, _ := io.ReadAll(request.Body)
		if !isSigned(key, request.Header, body) || json.Unmarshal(body, &event) != nil {
			http.Error(response, "not signed", http.StatusUnauthorized)
		} else if data, ok := event["data"].(object); ok {
			json.NewEncoder(response).Encode(answer(fmt.Sprint(event["type"]), data))
		}
	}))
}
