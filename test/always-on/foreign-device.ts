/**
 * `foreign-device.ts SERVER CA TOKEN-FILE DOMAIN PORT`: a program with the vendor's SDK alone, as its
 * documentation shows it. It says when its endpoint is open, and runs until it is killed.
 */
import { readFileSync } from 'node:fs'
import ngrok from '@ngrok/ngrok'

const [, , server = '', ca = '', tokenFile = '', domain = '', port = ''] = process.argv
const session = await new ngrok.SessionBuilder()
  .authtoken(readFileSync(tokenFile, 'utf8').trim())
  .serverAddr(server.replace('127.0.0.1', 'localhost'))
  .caCert(readFileSync(ca))
  .connect()
await session.httpEndpoint().domain(domain).listenAndForward(`http://127.0.0.1:${port}`)
process.stdout.write('open\n')
setInterval(() => {}, 60_000)
