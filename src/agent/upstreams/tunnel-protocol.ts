/** What visitors of a tunnel speak. */
export type TunnelProtocol = 'http' | 'tcp'
