// An application beside Encke in Node: names users, protects channels, changes messages and answers a service.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';

const key = Buffer.from(process.env.WEBHOOK_SECRET.replace('whsec_', ''), 'base64');

// True if Encke signed this body at most five minutes ago.
function isSigned(headers, body) {
  const { 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': signatures = '' } = headers;
  const expected = createHmac('sha256', key).update(`${id}.${time}.`).update(body).digest();
  const matches = (signature) => {
    const given = Buffer.from(signature.replace('v1,', ''), 'base64');
    return given.length === expected.length && timingSafeEqual(given, expected);
  };
  return Math.abs(Date.now() / 1000 - Number(time)) < 300 && signatures.split(' ').some(matches);
}

const answers = {
  // The client sends its name in `ext`. A real application checks a password or a cookie here.
  handshake: ({ ext }) =>
    /^\w+$/.test(ext?.name ?? '') ? { allow: true, user: ext.name } : { allow: false, code: 401, reason: 'name_required' },

  // Everyone may read /public/…, and each user one private channel.
  subscribe: ({ user, channel }) =>
    channel.startsWith('/public/') || channel === `/private/${user}` ? { allow: true } : { allow: false, reason: 'not_yours' },

  // Adds the publisher to each message.
  publish: ({ user, data }) => ({ allow: true, data: { text: data.text, by: user } }),

  // Answers the caller, and publishes to everyone.
  service: ({ user }) => ({
    reply: { hello: user },
    actions: [{ publish: { channel: '/public/greeted', data: { user } } }],
  }),

  opened: ({ session, user }) => console.log(`${user} has opened ${session}`),
  ended: ({ session, reason }) => console.log(`${session} has ended: ${reason}`),
};

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (!isSigned(request.headers, body)) return response.writeHead(401).end();
  try {
    const { type, data } = JSON.parse(body);
    response.setHeader('content-type', 'application/json').end(JSON.stringify(answers[type](data) ?? {}));
  } catch (error) {
    // A client sent something unexpected: its message is refused.
    response.writeHead(400).end(error.message);
  }
}).listen(Number(process.env.PORT ?? 3000), '127.0.0.1', function () {
  console.log(`listening on http://127.0.0.1:${this.address().port}/`);
});
