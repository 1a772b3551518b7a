// CometD's chat service as a webhook: rooms such as /chat/demo with their members, private messages, and a filter.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';

// The members of each room: the session of each name. And the action that publishes their names.
const rooms = new Map();
const names = (room) => ({ publish: { channel: room.replace('/chat/', '/members/'), data: [...rooms.get(room).keys()] } });
const escapeMarkup = (text) => text.replaceAll('<', '&lt;').replaceAll('>', '&gt;');

const services = {
  // Someone enters a room: everyone in it gets the list of members.
  '/service/members': (session, { room, user }) => {
    if (!room?.startsWith('/chat/') || !user) return { failure: 'members needs a room and a user' };
    rooms.set(room, (rooms.get(room) ?? new Map()).set(escapeMarkup(user), session));
    return { actions: [names(room)] };
  },
  // A message for some members only: they and the sender get it.
  '/service/privatechat': (session, { room, user, peer, chat }, id) => {
    const peers = peer.split(',').map((name) => rooms.get(room)?.get(name)).filter(Boolean);
    if (peers.length === 0) return {};
    const data = { chat: escapeMarkup(chat), user: escapeMarkup(user), scope: 'private' };
    return { actions: [...new Set([...peers, session])].map((to) => ({ deliver: { session: to, channel: room, data, id } })) };
  },
};
const answers = {
  service: ({ session, channel, data, message_id }) => services[channel](session, data, message_id),
  // The end of a session removes it from its rooms.
  ended: ({ session }) => {
    const left = [...rooms].filter(([, members]) => [...members].some(([name, id]) => id === session && members.delete(name)));
    return { actions: left.map(([room]) => names(room)) };
  },
  // Markup never reaches a page, and a bad word drops its message.
  publish: ({ data }) => {
    const texts = Object.entries(data).map(([key, value]) => [key, typeof value === 'string' ? escapeMarkup(value) : value]);
    return texts.some(([, value]) => /\bdang\b/i.test(value)) ? { allow: true, drop: true } : { allow: true, data: Object.fromEntries(texts) };
  },
};

const key = Buffer.from(process.env.WEBHOOK_SECRET.replace('whsec_', ''), 'base64');
function isSigned({ 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': signatures = '' }, body) {
  const expected = Buffer.from(`v1,${createHmac('sha256', key).update(`${id}.${time}.`).update(body).digest('base64')}`);
  const matches = (given) => given.length === expected.length && timingSafeEqual(Buffer.from(given), expected);
  return Math.abs(Date.now() / 1000 - Number(time)) < 300 && signatures.split(' ').some(matches);
}

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  try {
    if (!isSigned(request.headers, body)) return response.writeHead(401).end();
    const { type, data } = JSON.parse(body);
    response.setHeader('content-type', 'application/json').end(JSON.stringify(answers[type](data)));
  } catch (error) {
    response.writeHead(400).end(error.message);
  }
}).listen(Number(process.env.PORT ?? 3000), '127.0.0.1', function () {
  console.log(`listening on http://127.0.0.1:${this.address().port}/`);
});
