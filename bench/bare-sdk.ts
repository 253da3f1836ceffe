/**
 * Tunnels by the SDK alone, with its own reconnect: what the agent's supervision is held against. One
 * for each port.
 */
import { readFileSync } from 'node:fs'
import { SessionBuilder } from '@ngrok/ngrok'

const [serverAddr = '', caPath = '', tokenPath = '', domain = '', ...ports] = process.argv.slice(2)
const session = await new SessionBuilder()
  .authtoken(readFileSync(tokenPath, 'utf8').trim())
  .serverAddr(serverAddr)
  .caCert(readFileSync(caPath))
  .connect()
const urls: (string | null)[] = []
for (const [index, port] of ports.entries()) {
  const listener = await session
    .httpEndpoint()
    .domain(index === 0 ? domain : `${index}.${domain}`)
    .listenAndForward(`http://localhost:${port}`)
  urls.push(listener.url())
}
console.log(urls.join(' '))
setInterval(() => {}, 60_000)
