/**
 * Opens TLS connections all at once and holds them. Arguments: HTTPS port, file of the CA, how many.
 * It says so when all handshakes are done, and ends when it is told to.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { connect as tlsConnect } from 'node:tls'
import { FLOODED } from './flood-kinds.ts'

const [port = '', caFile = '', count = ''] = process.argv.slice(2)
const terms = { servername: FLOODED, ca: readFileSync(caFile), ALPNProtocols: ['h2'] }

async function hold(n: number): Promise<void> {
  // Of several addresses, so that none is beyond its share.
  const localAddress = `127.0.0.${2 + (n % 50)}`
  const socket = connect({ port: Number(port), host: '127.0.0.1', localAddress })
  const secured = tlsConnect({ ...terms, socket }).resume()
  await once(secured, 'secureConnect')
  secured.on('error', () => {})
}

await Promise.all(Array.from({ length: Number(count) }, (_, n) => hold(n)))
process.send?.('held')
process.once('disconnect', () => process.exit())
