/** How clients reach an endpoint. */
export type EndpointProtocol = 'http' | 'https'
